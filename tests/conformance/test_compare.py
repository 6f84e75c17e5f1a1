"""The comparison can fail: a proxy that breaks, drops or hides a check does not get past it."""

import pytest

from tests.conformance.compare import Check, lost, unmet
from tests.conformance.suite import SecondRun, run_patiently

PING = Check("ping", "ping", "SUCCESS")
PING_SCHEMA = Check("ping", "wire-schema-valid", "SUCCESS")
ACCEPTED = Check("headers", "accepts", "SUCCESS")
REJECTED = Check("headers", "rejects", "SUCCESS")
EVENT = Check("polling", "incoming-sse-event", "INFO")
SKIPPED = Check("tasks", "notifications", "SKIPPED")

DIRECT = [PING, PING_SCHEMA, ACCEPTED, REJECTED, REJECTED, EVENT, SKIPPED]


def test_the_same_results_lose_nothing() -> None:
    assert lost(DIRECT, DIRECT) == []


def test_the_order_of_results_does_not_matter() -> None:
    assert lost(DIRECT, DIRECT[::-1]) == []


def test_a_check_that_fails_is_lost() -> None:
    broken = Check("ping", "ping", "FAILURE", "no answer")
    assert lost(DIRECT, [broken, *DIRECT[1:]]) == [
        "ping ping: SUCCESS 1 directly, FAILURE 1 through the hub",
        "ping ping: FAILURE no answer",
    ]


def test_a_check_that_only_warns_is_lost() -> None:
    worse = Check("ping", "ping", "WARNING", "late")
    assert lost(DIRECT, [worse, *DIRECT[1:]])[0] == "ping ping: SUCCESS 1 directly, WARNING 1 through the hub"


def test_a_check_that_decides_nothing_any_more_is_lost() -> None:
    for status in ("INFO", "SKIPPED"):
        undecided = Check("ping", "ping", status)
        words = f"ping ping: SUCCESS 1 directly, {status} 1 through the hub"
        assert lost(DIRECT, [undecided, *DIRECT[1:]]) == [words]


def test_a_check_that_vanished_is_lost() -> None:
    assert lost(DIRECT, DIRECT[1:]) == ["ping ping: SUCCESS 1 directly, is not there through the hub"]


def test_one_of_two_checks_of_an_id_that_vanished_is_lost() -> None:
    fewer = [check for check in DIRECT if check is not REJECTED] + [REJECTED]
    assert lost(DIRECT, fewer) == ["headers rejects: SUCCESS 2 directly, SUCCESS 1 through the hub"]


def test_one_of_two_checks_of_an_id_that_fails_is_lost() -> None:
    half = [*(check for check in DIRECT if check is not REJECTED), REJECTED, Check("headers", "rejects", "FAILURE")]
    assert lost(DIRECT, half) == [
        "headers rejects: SUCCESS 2 directly, FAILURE 1, SUCCESS 1 through the hub",
        "headers rejects: FAILURE",
    ]


def test_a_scenario_that_vanished_is_lost_once() -> None:
    assert lost(DIRECT, DIRECT[2:]) == ["ping: no such scenario any more"]


def test_a_scenario_that_passed_nothing_is_lost_as_well() -> None:
    assert lost(DIRECT, DIRECT[:-1]) == ["tasks: no such scenario any more"]


def test_nothing_at_all_loses_every_scenario() -> None:
    assert len(lost(DIRECT, [])) == 4


def test_a_failure_that_only_the_hub_has_is_told() -> None:
    setup = Check("headers", "setup", "FAILURE", "no list")
    assert lost(DIRECT, [*DIRECT, setup]) == ["headers setup: FAILURE no list"]


def test_what_fails_directly_may_fail_through_the_hub() -> None:
    broken = [Check("ping", "ping", "FAILURE", "a known one"), *DIRECT[1:]]
    assert lost(broken, broken) == []


def test_what_fails_directly_may_pass_through_the_hub() -> None:
    assert lost([Check("ping", "ping", "FAILURE"), *DIRECT[1:]], DIRECT) == []


def test_lines_that_decide_nothing_may_come_and_go() -> None:
    assert lost(DIRECT, [*DIRECT, EVENT, EVENT]) == []
    assert lost([*DIRECT, Check("ping", "note", "INFO")], DIRECT) == []


def test_more_checks_may_pass_through_the_hub() -> None:
    assert lost(DIRECT, [*DIRECT, PING]) == []


def test_what_is_unmet_is_told_with_its_reason() -> None:
    checks = [*DIRECT, Check("a", "b", "FAILURE", "why"), Check("a", "c", "WARNING")]
    assert unmet(checks) == ["a b: FAILURE why", "a c: WARNING"]


def test_what_needed_a_second_run_is_said() -> None:
    runs = iter([[Check("scenario", "check", "FAILURE", "too late")], [Check("scenario", "check", "SUCCESS")]])
    with pytest.warns(SecondRun, match="scenario check: FAILURE too late"):
        found = run_patiently(lambda: next(runs), unmet)
    assert unmet(found) == []


def test_what_passes_is_run_once() -> None:
    runs = iter([[Check("scenario", "check", "SUCCESS")]])
    assert len(run_patiently(lambda: next(runs), unmet)) == 1
