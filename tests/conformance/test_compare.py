"""The comparison can fail: a proxy that breaks, drops or hides a check does not get past it."""

from collections.abc import Callable

import pytest

from tests.conformance.compare import Check, in_words, lost, unmet
from tests.conformance.suite import RUNS, SecondRun, good_run, wrong_in_every_run

PING = Check("ping", "ping", "SUCCESS")
PING_SCHEMA = Check("ping", "wire-schema-valid", "SUCCESS")
ACCEPTED = Check("headers", "accepts", "SUCCESS")
REJECTED = Check("headers", "rejects", "SUCCESS")
EVENT = Check("polling", "incoming-sse-event", "INFO")
SKIPPED = Check("tasks", "notifications", "SKIPPED")

DIRECT = [PING, PING_SCHEMA, ACCEPTED, REJECTED, REJECTED, EVENT, SKIPPED]


def test_the_same_results_lose_nothing() -> None:
    assert in_words(lost(DIRECT, DIRECT)) == []


def test_the_order_of_results_does_not_matter() -> None:
    assert in_words(lost(DIRECT, DIRECT[::-1])) == []


def test_a_check_that_fails_is_lost() -> None:
    broken = Check("ping", "ping", "FAILURE", "no answer")
    assert in_words(lost(DIRECT, [broken, *DIRECT[1:]])) == [
        "ping ping: SUCCESS 1 directly, FAILURE 1 through the hub",
        "ping ping: FAILURE no answer",
    ]


def test_a_check_that_only_warns_is_lost() -> None:
    worse = Check("ping", "ping", "WARNING", "late")
    assert in_words(lost(DIRECT, [worse, *DIRECT[1:]]))[0] == "ping ping: SUCCESS 1 directly, WARNING 1 through the hub"


def test_a_check_that_decides_nothing_any_more_is_lost() -> None:
    for status in ("INFO", "SKIPPED"):
        undecided = Check("ping", "ping", status)
        words = f"ping ping: SUCCESS 1 directly, {status} 1 through the hub"
        assert in_words(lost(DIRECT, [undecided, *DIRECT[1:]])) == [words]


def test_a_check_that_vanished_is_lost() -> None:
    assert in_words(lost(DIRECT, DIRECT[1:])) == ["ping ping: SUCCESS 1 directly, is not there through the hub"]


def test_one_of_two_checks_of_an_id_that_vanished_is_lost() -> None:
    fewer = [check for check in DIRECT if check is not REJECTED] + [REJECTED]
    assert in_words(lost(DIRECT, fewer)) == ["headers rejects: SUCCESS 2 directly, SUCCESS 1 through the hub"]


def test_one_of_two_checks_of_an_id_that_fails_is_lost() -> None:
    half = [*(check for check in DIRECT if check is not REJECTED), REJECTED, Check("headers", "rejects", "FAILURE")]
    assert in_words(lost(DIRECT, half)) == [
        "headers rejects: SUCCESS 2 directly, FAILURE 1, SUCCESS 1 through the hub",
        "headers rejects: FAILURE",
    ]


def test_a_scenario_that_vanished_is_lost_once() -> None:
    assert in_words(lost(DIRECT, DIRECT[2:])) == ["ping: no such scenario any more"]


def test_a_scenario_that_passed_nothing_is_lost_as_well() -> None:
    assert in_words(lost(DIRECT, DIRECT[:-1])) == ["tasks: no such scenario any more"]


def test_nothing_at_all_loses_every_scenario() -> None:
    assert len(in_words(lost(DIRECT, []))) == 4


def test_a_failure_that_only_the_hub_has_is_told() -> None:
    setup = Check("headers", "setup", "FAILURE", "no list")
    assert in_words(lost(DIRECT, [*DIRECT, setup])) == ["headers setup: FAILURE no list"]


def test_what_fails_directly_may_fail_through_the_hub() -> None:
    broken = [Check("ping", "ping", "FAILURE", "a known one"), *DIRECT[1:]]
    assert in_words(lost(broken, broken)) == []


def test_what_fails_directly_may_pass_through_the_hub() -> None:
    assert in_words(lost([Check("ping", "ping", "FAILURE"), *DIRECT[1:]], DIRECT)) == []


def test_lines_that_decide_nothing_may_come_and_go() -> None:
    assert in_words(lost(DIRECT, [*DIRECT, EVENT, EVENT])) == []
    assert in_words(lost([*DIRECT, Check("ping", "note", "INFO")], DIRECT)) == []


def test_more_checks_may_pass_through_the_hub() -> None:
    assert in_words(lost(DIRECT, [*DIRECT, PING])) == []


def test_what_is_unmet_is_told_with_its_reason() -> None:
    checks = [*DIRECT, Check("a", "b", "FAILURE", "why"), Check("a", "c", "WARNING")]
    assert in_words(unmet(checks)) == ["a b: FAILURE why", "a c: WARNING"]


def runs(*found: list[Check]) -> Callable[[], list[Check]]:
    """One run after the other; more than these there must not be."""
    left = iter(found)
    return lambda: next(left)


LATE = Check("ping", "ping", "FAILURE", "too late")
LATE_AS_WELL = Check("headers", "accepts", "FAILURE", "too late")


def test_a_run_in_which_nothing_is_wrong_is_the_only_one() -> None:
    assert good_run(runs([PING]), lambda found: in_words(unmet(found))) == [PING]
    assert wrong_in_every_run(runs([PING]), unmet) == {}


def test_what_needed_another_run_is_said() -> None:
    with pytest.warns(SecondRun, match="ping ping: FAILURE too late"):
        found = good_run(runs([LATE], [PING]), lambda found: in_words(unmet(found)))
    assert found == [PING]
    with pytest.warns(SecondRun, match="ping ping: FAILURE too late"):
        assert wrong_in_every_run(runs([LATE], [PING]), unmet) == {}


def test_the_last_run_has_to_do() -> None:
    with pytest.warns(SecondRun) as said:
        found = good_run(runs(*[[LATE]] * RUNS), lambda found: in_words(unmet(found)))
    assert (found, len(said)) == ([LATE], RUNS - 1)


def test_what_is_wrong_in_every_run_is_wrong() -> None:
    with pytest.warns(SecondRun) as said:
        problems = wrong_in_every_run(runs([LATE, LATE_AS_WELL], *[[LATE, ACCEPTED]] * (RUNS - 1)), unmet)
    assert (in_words(problems), len(said)) == (["ping ping: FAILURE too late"], RUNS - 1)


def test_another_check_that_is_late_each_time_is_none_that_is_wrong() -> None:
    with pytest.warns(SecondRun, match="ping ping: FAILURE too late"):
        assert wrong_in_every_run(runs([LATE, ACCEPTED], [PING, LATE_AS_WELL]), unmet) == {}


def test_a_check_that_fails_and_whose_scenario_is_not_there_the_next_time_is_wrong() -> None:
    found = [[LATE, *DIRECT[1:]], DIRECT[2:]]
    with pytest.warns(SecondRun):
        problems = wrong_in_every_run(runs(*found * (RUNS // 2)), lambda checks: lost(DIRECT, checks))
    assert list(problems) == [("ping", "ping")]
