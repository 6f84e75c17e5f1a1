"""The replay buffer: what a client has missed of a stream, and never anything of another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from emceepee.front.event_ids import EventId, label_of, read_event_id
from emceepee.front.replay import Kind, ReplayBuffer
from tests.requirements import requirement


def add(buffer: ReplayBuffer, stream: int, data: str, kind: Kind = "message") -> str:
    event_id = buffer.next_id(stream)
    buffer.add(stream, f"{event_id}:{data}".encode(), kind)
    return event_id


def missed(buffer: ReplayBuffer, event_id: str) -> list[str] | None:
    replay = buffer.after(event_id)
    return None if replay is None else [frame.decode().partition(":")[2] for frame in replay.frames]


@requirement("T001-replay")
def test_what_came_after_an_event_is_replayed_for_its_own_stream_only() -> None:
    buffer = ReplayBuffer("a")
    one, two = buffer.open(), buffer.open()
    first = add(buffer, one, "1")
    other = add(buffer, two, "x")
    second = add(buffer, one, "2")
    add(buffer, two, "y")
    assert missed(buffer, first) == ["2"]
    assert missed(buffer, second) == []
    assert missed(buffer, other) == ["y"]
    assert len({first, second, other}) == 3


@requirement("T001-replay-isolation")
def test_an_id_of_another_buffer_is_unknown() -> None:
    before, after = ReplayBuffer("before"), ReplayBuffer("after")
    event_id = add(before, before.open(), "secret")
    add(after, after.open(), "mine")
    assert after.after(event_id) is None
    assert after.stream_of(event_id) is None


@pytest.mark.parametrize(
    "event_id",
    [
        *("", "-", "a", "a-1", "a-1-", "a--1", "a-1-x", "a-1-1-1", "a-0-0", "a-1-99", "a-99-1", "b-1-1", "a-1--1"),
        *("a-\u0661-1", "a-1-\u00b2", "a-1-" + "9" * 5000, "a-" + "9" * 5000 + "-1", " a-1-1", "a-1-1 "),
    ],
)
def test_an_id_that_was_never_given_is_unknown(event_id: str) -> None:
    buffer = ReplayBuffer("a")
    add(buffer, buffer.open(), "1")
    assert buffer.after(event_id) is None


@given(st.text())
def test_whatever_a_client_sends_as_an_id_does_no_harm(event_id: str) -> None:
    buffer = ReplayBuffer("a")
    add(buffer, buffer.open(), "1")
    replay = buffer.after(event_id)
    assert replay is None or event_id in ("a-1-0", "a-1-1")


def test_the_oldest_goes_first_and_what_is_left_is_replayed() -> None:
    buffer = ReplayBuffer("a", max_events=3)
    stream = buffer.open()
    ids = [add(buffer, stream, str(number)) for number in range(5)]
    assert missed(buffer, ids[0]) == ["2", "3", "4"]
    assert missed(buffer, ids[2]) == ["3", "4"]
    assert (len(buffer), buffer.streams) == (3, 1)


def test_news_goes_before_what_was_asked_and_that_before_a_response_that_nobody_has_taken() -> None:
    buffer = ReplayBuffer("a", max_events=3)
    waiting, other = buffer.open(), buffer.open()
    first = add(buffer, waiting, "progress", "news")
    add(buffer, waiting, "question")
    add(buffer, waiting, "response", "response")
    add(buffer, other, "progress", "news")
    assert missed(buffer, first) == ["question", "response"]
    add(buffer, other, "question")
    add(buffer, other, "question")
    assert missed(buffer, first) == ["response"]
    # Once it has been delivered it goes as anything else.
    buffer.close(waiting)
    add(buffer, other, "question")
    assert buffer.after(first) is None


def test_whether_a_response_was_missed_and_is_gone_is_said() -> None:
    buffer = ReplayBuffer("a", max_bytes=100)
    one, two = buffer.open(), buffer.open()
    before = add(buffer, one, "1", "news")
    response = add(buffer, one, "x" * 50, "response")
    add(buffer, two, "x" * 90, "response")
    replays = [buffer.after(event_id) for event_id in (before, response)]
    assert [replay and (replay.frames, replay.lacks_response) for replay in replays] == [([], True), ([], False)]


def test_bytes_are_bounded_but_for_one_frame_that_is_larger_by_itself() -> None:
    buffer = ReplayBuffer("a", max_bytes=100)
    stream = buffer.open()
    first = add(buffer, stream, "x" * 40)
    for _ in range(5):
        add(buffer, stream, "x" * 40)
    assert buffer.size <= 100
    add(buffer, stream, "x" * 1000)
    assert len(buffer) == 1
    assert missed(buffer, first) == ["x" * 1000]
    add(buffer, stream, "small")
    assert buffer.size <= 100


def test_a_closed_stream_is_forgotten_with_its_last_frame() -> None:
    buffer = ReplayBuffer("a", max_events=2)
    closed, other = buffer.open(), buffer.open()
    event_id = add(buffer, closed, "1")
    buffer.close(closed)
    assert missed(buffer, event_id) == []
    add(buffer, other, "2")
    add(buffer, other, "3")
    assert buffer.after(event_id) is None
    assert buffer.stream_of(event_id) == closed
    assert buffer.streams == 1
    buffer.close(closed)
    buffer.forget(closed)
    empty = buffer.open()
    buffer.close(empty)
    assert buffer.streams == 1


@given(
    request_id=st.text(st.characters(codec="utf-8"), max_size=20) | st.integers(-(10**16), 10**16),
    stream=st.integers(0, 10**9),
)
def test_an_id_tells_a_hub_that_did_not_give_it_which_request_its_stream_answers(
    request_id: str | int, stream: int
) -> None:
    event_id = EventId("name", stream, label_of(request_id), 7)
    read = read_event_id(str(event_id))
    assert read == event_id
    assert read.request_id == (None if read.label == "x" else request_id)
    assert str(event_id).isascii()


@pytest.mark.parametrize("request_id", ["x" * 64, "\u00e9" * 11, 10**17, -(10**17)])
def test_a_request_id_that_is_too_long_does_not_make_every_event_longer(request_id: str | int) -> None:
    read = read_event_id(str(EventId("name", 1, label_of(request_id), 7)))
    assert read == EventId("name", 1, "x", 7)
    assert read.request_id is None


def test_an_id_that_says_another_request_than_its_stream_is_unknown() -> None:
    buffer = ReplayBuffer("a")
    event_id = add(buffer, buffer.open(label_of(5)), "1")
    assert event_id == "a-1.n5-1"
    assert missed(buffer, event_id) == []
    assert [buffer.after(other) for other in ("a-1.n6-1", "a-1-1", "a-1.s5-1")] == [None] * 3


class ReplayMachine(RuleBasedStateMachine):
    """Any order of opening, sending, closing, forgetting; the model keeps everything that was ever sent."""

    streams = Bundle("streams")
    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.buffer = ReplayBuffer("m", max_events=7, max_bytes=300)
        self.sent: dict[int, list[tuple[str, bytes]]] = {}
        self.all_ids: list[str] = []
        self.forgotten: set[int] = set()
        self.responses: dict[int, bytes] = {}

    @rule(target=streams)
    def open(self) -> int:
        stream = self.buffer.open()
        assert stream not in self.sent
        self.sent[stream] = []
        return stream

    @rule(target=ids, stream=streams, size=st.integers(0, 120), is_news=st.booleans())
    def add(self, stream: int, size: int, is_news: bool) -> str:
        event_id = self.buffer.next_id(stream)
        frame = f"{event_id}:".encode() + b"x" * size
        self.buffer.add(stream, frame, "news" if is_news else "message")
        self.sent[stream].append((event_id, frame))
        self.all_ids.append(event_id)
        return event_id

    @rule(target=ids, stream=consumes(streams), size=st.integers(0, 120))
    def respond(self, stream: int, size: int) -> str:
        event_id = self.buffer.next_id(stream)
        frame = f"{event_id}:".encode() + b"x" * size
        self.buffer.add(stream, frame, "response")
        self.sent[stream].append((event_id, frame))
        self.all_ids.append(event_id)
        self.responses[stream] = frame
        return event_id

    @rule(stream=consumes(streams))
    def close(self, stream: int) -> None:
        self.buffer.close(stream)

    @rule(stream=consumes(streams))
    def forget(self, stream: int) -> None:
        self.buffer.forget(stream)
        self.forgotten.add(stream)

    @rule(event_id=ids)
    def resume(self, event_id: str) -> None:
        (stream,) = [number for number, sent in self.sent.items() if event_id in [one for one, _ in sent]]
        assert self.buffer.stream_of(event_id) == stream
        replay = self.buffer.after(event_id)
        known = [one for one, _ in self.sent[stream]]
        expected = [frame for _, frame in self.sent[stream][known.index(event_id) + 1 :]]
        if replay is not None:
            # In order, of this stream; and that the response is not among it is said.
            assert (replay.stream, list(replay.frames)) == (stream, [one for one in expected if one in replay.frames])
            response = self.responses.get(stream)
            assert replay.lacks_response is (response in expected and response not in replay.frames)
            assert stream not in self.forgotten

    @invariant()
    def bounds_hold(self) -> None:
        assert len(self.buffer) <= 7
        assert self.buffer.size <= 300 or len(self.buffer) == 1
        assert self.buffer.size >= 0
        assert len(set(self.all_ids)) == len(self.all_ids)


TestReplayMachine = ReplayMachine.TestCase
