"""Changes that wait to be written."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from emceepee.store import Key
from emceepee.store.pending import Change, Delete, DeleteOwner, DeleteUpTo, Pending, Put

KINDS, OWNERS, IDS = ("task", "event"), ("s1", "s2"), ("1", "2", "3")
keys = st.builds(Key, st.sampled_from(KINDS), st.sampled_from(OWNERS), st.sampled_from(IDS))
changes = st.one_of(
    st.builds(Put, keys, st.sampled_from(("x", "y"))),
    st.builds(Delete, keys),
    st.builds(DeleteOwner, st.sampled_from(OWNERS)),
    st.builds(DeleteUpTo, keys),
)
batches = st.lists(st.lists(changes, max_size=6), max_size=5)


def written(records: dict[Key, str], made: Iterable[Change]) -> dict[Key, str]:
    """The records after changes that are made one after the other."""
    after = dict(records)
    for change in made:
        match change:
            case Put(key, text):
                after[key] = text
            case Delete(key):
                after.pop(key, None)
            case DeleteOwner(owner):
                after = {key: text for key, text in after.items() if key.owner != owner}
            case DeleteUpTo(last):
                after = {key: text for key, text in after.items() if not (key[:2] == last[:2] and key.id <= last.id)}
    return after


@given(st.dictionaries(keys, st.just("before")), batches)
def test_whatever_fails_meanwhile_the_same_is_written_in_the_end(
    records: dict[Key, str], made: list[list[Change]]
) -> None:
    """Each batch was made while the write of those before it failed, and what deletes nothing was dropped."""
    waiting = Pending()
    for batch in made:
        later = Pending()
        for change in batch:
            later.add(change)
        waiting.append(later)
        waiting.drop_deletes_of_others(set(records))
    everything = [change for batch in made for change in batch]
    assert written(records, waiting) == written(records, everything)
    assert waiting.delete_count <= 3 * len(records)


def test_what_came_and_went_meanwhile_is_not_kept() -> None:
    pending = Pending()
    for number in range(100):
        key = Key("event", f"s{number}", str(number))
        pending.add(Put(key, "{}"))
        pending.add((Delete(key), DeleteOwner(key.owner), DeleteUpTo(key))[number % 3])
    pending.drop_deletes_of_others({Key("event", "s0", "0")})
    assert list(pending) == [Delete(Key("event", "s0", "0"))]


def test_deleting_less_than_before_leaves_what_was_to_be_deleted() -> None:
    pending = Pending()
    pending.add(DeleteUpTo(Key("event", "s", "9")))
    pending.add(Put(Key("event", "s", "3"), "{}"))
    pending.add(DeleteUpTo(Key("event", "s", "5")))
    assert list(pending) == [DeleteUpTo(Key("event", "s", "9"))]
