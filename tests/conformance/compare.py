"""What the suite found at a server itself, against what it found at the same server through the hub.

Compared are the checks of each scenario by their id, and how often each passed: one id may stand for several checks.
Totals alone would hide a check that was never made.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Check", "Problems", "Statuses", "in_words", "lost", "statuses", "unmet"]

PASSED = "SUCCESS"
UNMET = ("FAILURE", "WARNING")
"""A MUST and a SHOULD that was not kept. The others, `INFO` and `SKIPPED`, say that nothing was decided."""


@dataclass(frozen=True)
class Check:
    """One line of the suite's results; `message` says what was wrong, if anything was."""

    scenario: str
    id: str
    status: str
    message: str = ""


Statuses = Mapping[tuple[str, str], Counter[str]]
"""How often the check of a scenario and an id came out how."""


Problems = Mapping[tuple[str, str], list[str]]
"""What is wrong with the check of a scenario and an id, in words."""


def in_words(problems: Problems) -> list[str]:
    """Each problem once: that a scenario is not there is one, of however many checks."""
    return list(dict.fromkeys(words for about_one in problems.values() for words in about_one))


def statuses(checks: Iterable[Check]) -> Statuses:
    counted: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for check in checks:
        counted[check.scenario, check.id][check.status] += 1
    return counted


def unmet(checks: Iterable[Check]) -> Problems:
    """Every check that failed or warned."""
    problems: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for check in checks:
        if check.status in UNMET:
            problems[check.scenario, check.id].append(_outcome(check))
    return problems


def lost(direct: Iterable[Check], through: Iterable[Check]) -> Problems:
    """What was there or passed directly and is not or does not through the hub; none is as it should be."""
    through = list(through)
    before, after = statuses(direct), statuses(through)
    reached = {check.scenario for check in through}
    problems: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for (scenario, check_id), counts in before.items():
        now = after.get((scenario, check_id))
        if scenario not in reached:
            problems[scenario, check_id].append(f"{scenario}: no such scenario any more")
        elif counts[PASSED] > (0 if now is None else now[PASSED]):
            became = "is not there" if now is None else ", ".join(f"{status} {n}" for status, n in sorted(now.items()))
            words = f"{scenario} {check_id}: {PASSED} {counts[PASSED]} directly, {became} through the hub"
            problems[scenario, check_id].append(words)
    for check in through:
        known = before.get((check.scenario, check.id), Counter())
        if check.status in UNMET and after[check.scenario, check.id][check.status] > known[check.status]:
            problems[check.scenario, check.id].append(_outcome(check))
    return problems


def _outcome(check: Check) -> str:
    return f"{check.scenario} {check.id}: {check.status} {check.message}".rstrip()
