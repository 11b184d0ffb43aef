"""Events wait in their order; each reader gets those that it asked for, as they were when they happened."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import EPOCH, ManualClock
from helpers.records import new_record
from helpers.waiting import eventually
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Request
from taskgate.telemetry.events import Event, LateAnswerDropped, RateLimitAllowed, SessionLost, TaskPolled, TaskPurged
from taskgate.telemetry.request_context import LARGE_MESSAGE, RequestContext, current, in_request
from taskgate.telemetry.ring import BATCH, FOLD_DELAY, MAX_PAYLOADS, EventRing

LOST = SessionLost("reports")


class Reader:
    """A reader that notes in `seen` what it gets, and what failed."""

    def __init__(self, name: str, seen: list[tuple[str, Any]]) -> None:
        self.name, self.seen = name, seen

    def note(self, event: Event) -> None:
        self.seen.append((self.name, event))

    def fail(self, event: Event) -> None:
        raise ValueError

    def note_failure(self, event: Event) -> None:
        self.seen.append((f"{self.name} failed", event))


def of(handle: Callable[[Any], None], *kinds: type) -> dict[type, Callable[[Any], None]]:
    return dict.fromkeys(kinds, handle)


def test_a_reader_gets_the_events_that_it_asked_for() -> None:
    event_sink, seen = EventRing(), list[tuple[str, Any]]()
    reader = Reader("a", seen)
    event_sink.subscribe(reader, of(reader.note, SessionLost))
    event_sink.emit(LateAnswerDropped("m"))
    event_sink.emit(LOST)
    event_sink.fold()
    assert seen == [("a", LOST)]


def test_readers_and_their_parts_are_called_in_the_order_of_the_first_subscription() -> None:
    event_sink, seen = EventRing(), list[tuple[str, Any]]()
    first, second = Reader("first", seen), Reader("second", seen)
    event_sink.subscribe(first, {})
    event_sink.subscribe(second, of(second.note, SessionLost))
    event_sink.subscribe(first, of(first.note, SessionLost), of(first.note, SessionLost, LateAnswerDropped))
    event_sink.emit(LOST)
    event_sink.fold()
    assert seen == [("first", LOST), ("first", LOST), ("second", LOST)]


def test_a_subscription_replaces_the_one_before() -> None:
    event_sink, seen = EventRing(), list[tuple[str, Any]]()
    reader = Reader("a", seen)
    event_sink.subscribe(reader, of(reader.note, SessionLost))
    event_sink.subscribe(reader, of(reader.note, LateAnswerDropped))
    event_sink.emit(LOST)
    event_sink.fold()
    assert seen == []


def test_an_exception_in_one_handler_is_noted_by_its_reader_and_keeps_no_other_from_the_event() -> None:
    event_sink, seen = EventRing(), list[tuple[str, Any]]()
    broken, sound = Reader("broken", seen), Reader("sound", seen)
    event_sink.subscribe(broken, of(broken.fail, SessionLost))
    event_sink.subscribe(sound, of(sound.note, SessionLost))
    event_sink.emit(LOST)
    event_sink.fold()
    assert seen == [("broken failed", LOST), ("sound", LOST)]


def test_a_handler_may_subscribe_again_while_it_is_called() -> None:
    event_sink, seen = EventRing(), list[tuple[str, Any]]()
    reader, other = Reader("a", seen), Reader("b", seen)

    def leave(event: Event) -> None:
        reader.note(event)
        event_sink.subscribe(reader)

    event_sink.subscribe(reader, of(leave, SessionLost))
    event_sink.subscribe(other, of(other.note, SessionLost))
    event_sink.emit(LOST)
    event_sink.emit(LOST)
    event_sink.fold()
    assert seen == [("a", LOST), ("b", LOST), ("b", LOST)]


def test_whoever_waits_for_a_batch_is_called_when_all_have_read_it_and_belongs_to_no_request() -> None:
    event_sink, seen = EventRing(), list[Any]()
    reader = Reader("a", seen)
    event_sink.subscribe(reader, of(reader.note, SessionLost))
    event_sink.on_batch = lambda: seen.append(current())
    with in_request(RequestContext("r-1", "", "POST", "/")):
        event_sink.emit(LOST)
        event_sink.emit(LOST)
        event_sink.fold()
    assert seen == [("a", LOST), ("a", LOST), None]


@pytest.mark.parametrize("counted", [True, False])
def test_an_event_that_happened_several_times_is_read_or_counted_so_often(counted: bool) -> None:
    event_sink, seen = EventRing(), list[Any]()
    reader, event = Reader("a", seen), RateLimitAllowed("calls", "context")
    event_sink.emit_many(event, 2)
    event_sink.subscribe(reader, of(reader.note, RateLimitAllowed))
    if counted:
        event_sink.count(reader, {RateLimitAllowed: lambda event, times: seen.extend([("a", event)] * times)})
    event_sink.emit(event)
    event_sink.emit_many(event, 3)
    event_sink.fold()
    assert seen == [("a", event)] * 4


# --- waiting ---------------------------------------------------------------------------------------------------------


def seen_by(event_sink: EventRing, *kinds: type) -> list[Any]:
    """What the only reader gets."""
    seen: list[Any] = []
    event_sink.subscribe(Reader("a", []), of(seen.append, *kinds))
    return seen


def test_events_wait_until_somebody_wants_to_know_and_no_more_than_a_batch() -> None:
    event_sink = EventRing()
    seen = seen_by(event_sink, SessionLost)
    for _ in range(BATCH - 1):
        event_sink.emit(LOST)
    assert seen == []
    event_sink.emit(LOST)
    assert len(seen) == BATCH
    event_sink.emit(LOST)
    event_sink.fold()
    assert len(seen) == BATCH + 1


def test_events_that_nobody_reads_take_no_place_on_the_ring() -> None:
    event_sink = EventRing()
    seen = seen_by(event_sink, SessionLost)
    event_sink.emit(LOST)
    for _ in range(BATCH):
        event_sink.emit(LateAnswerDropped("m"))
    assert seen == []
    event_sink.fold()
    assert seen == [LOST]


def test_a_large_message_of_a_request_that_nobody_reads_is_released() -> None:
    event_sink, request_context = EventRing(), RequestContext("r-1", "", "POST", "/")
    text = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":"%b"}}' % (b"a" * LARGE_MESSAGE)
    request_context.message = parse(text, max_depth=8)
    event_sink.emit(request_context)
    assert isinstance(request_context.message, Request)
    assert request_context.message.text == ""


async def test_events_with_a_line_wait_no_longer_than_a_moment_with_one_timer_for_all() -> None:
    event_sink, timers = EventRing(), list[float]()
    seen, loop = seen_by(event_sink, SessionLost), asyncio.get_running_loop()
    call_later = loop.call_later

    def counted(delay: float, *arguments: Any, **how: Any) -> asyncio.TimerHandle:
        timers.append(delay)
        return call_later(delay, *arguments, **how)

    loop.call_later = counted  # type: ignore[assignment, method-assign]
    event_sink.record({SessionLost})
    event_sink.start()
    for _ in range(10):
        event_sink.emit(LOST)
    await eventually(lambda: len(seen) == 10)
    assert timers.count(FOLD_DELAY) == 1
    event_sink.emit(LOST)
    event_sink.stop()
    assert (len(seen), timers.count(FOLD_DELAY)) == (11, 2)
    event_sink.emit(LOST)
    assert len(seen) == 12, "after the end nothing waits"


async def test_what_is_only_counted_has_no_timer_and_is_folded_with_what_has_a_line() -> None:
    event_sink = EventRing()
    seen = seen_by(event_sink, SessionLost, LateAnswerDropped)
    event_sink.record({SessionLost})
    event_sink.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "call_later", None)
        event_sink.emit(LateAnswerDropped("m"))
    event_sink.emit(LOST)
    await eventually(lambda: len(seen) == 2)
    event_sink.stop()


async def test_a_record_waits_no_longer_than_a_moment_also_without_an_audit_log() -> None:
    event_sink = EventRing()
    seen = seen_by(event_sink, TaskPurged)
    event_sink.start()
    event_sink.emit(TaskPurged(new_record()))
    await eventually(lambda: len(seen) == 1)
    event_sink.stop()


def test_no_more_events_wait_than_a_reader_has_room_for() -> None:
    event_sink, room = EventRing(), 3
    seen = seen_by(event_sink, SessionLost)
    event_sink.room = lambda: room
    event_sink.fold()
    for _ in range(3):
        event_sink.emit(LOST)
    assert len(seen) == 3
    room = 0
    event_sink.fold()
    event_sink.emit(LOST)
    assert len(seen) == 4


def test_what_happened_before_a_subscription_is_for_the_readers_of_before() -> None:
    event_sink = EventRing()
    seen = seen_by(event_sink, SessionLost)
    event_sink.emit(LOST)
    later = seen_by(event_sink, SessionLost)
    event_sink.emit(LOST)
    event_sink.fold()
    assert (len(seen), len(later)) == (2, 1)


# --- counted ---------------------------------------------------------------------------------------------------------


def test_equal_events_are_given_with_their_number_and_before_other_events() -> None:
    event_sink, seen = EventRing(), list[Any]()
    event_sink.subscribe(Reader("a", []), of(seen.append, SessionLost))

    def note(event: Event, times: int) -> None:
        seen.append((event, times))

    event_sink.count(Reader("a", []), dict.fromkeys((TaskPolled, RateLimitAllowed), note))
    event_sink.emit(LOST)
    for _ in range(3):
        event_sink.emit(TaskPolled("a", "b"))
    event_sink.emit(TaskPolled("a", "c"))
    event_sink.emit(RateLimitAllowed("a", "b"))
    event_sink.fold()
    counted = [(TaskPolled("a", "b"), 3), (TaskPolled("a", "c"), 1), (RateLimitAllowed("a", "b"), 1)]
    assert (seen, [type(event) for event, _ in seen[:3]]) == ([*counted, LOST], [TaskPolled] * 2 + [RateLimitAllowed])
    event_sink.fold()
    assert len(seen) == 4


def test_equal_events_come_one_by_one_while_another_reader_wants_them() -> None:
    event_sink, numbers, seen = EventRing(), list[int](), list[Any]()
    counting, other = Reader("counting", []), Reader("other", [])

    def count(event: Event, times: int = 1) -> None:
        numbers.append(times)

    event_sink.subscribe(counting, of(count, TaskPolled))
    event_sink.count(counting, {TaskPolled: count})
    event_sink.emit_many(TaskPolled("a", "b"), 2)
    event_sink.subscribe(other, of(lambda event: seen.append((event, current())), TaskPolled))
    request = RequestContext("r", "127.0.0.1", "POST", "/")
    with in_request(request):
        event_sink.emit_many(TaskPolled("a", "b"), 2)
    event_sink.subscribe(other, {})
    event_sink.emit_many(TaskPolled("a", "b"), 3)
    event_sink.fold()
    assert numbers == [2, 1, 1, 3]
    assert seen == [(TaskPolled("a", "b"), request)] * 2


async def test_what_a_reader_hastens_is_folded_in_time_until_it_hastens_no_more() -> None:
    event_sink, seen = EventRing(), list[Any]()
    reader = Reader("a", [])
    event_sink.subscribe(reader, of(seen.append, SessionLost))
    event_sink.start()
    event_sink.hasten(reader, (SessionLost,))
    event_sink.record(())
    event_sink.emit(LOST)
    await eventually(lambda: seen == [LOST])
    event_sink.hasten(reader, ())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "call_later", None)
        event_sink.emit(LOST)
    event_sink.stop()
    assert seen == [LOST, LOST]


def test_what_a_reader_emits_is_counted_with_the_event_that_it_reads() -> None:
    event_sink, seen = EventRing(), list[Any]()
    event_sink.count(Reader("a", []), {TaskPolled: lambda event, times: seen.append((event, times))})
    event_sink.subscribe(Reader("a", []), of(lambda _: event_sink.emit(TaskPolled("a", "b")), SessionLost))
    event_sink.emit(LOST)
    event_sink.emit(LOST)
    event_sink.fold()
    assert seen == [(TaskPolled("a", "b"), 2)]


def test_an_exception_in_a_counter_is_noted_and_keeps_no_other_from_its_number() -> None:
    event_sink, seen = EventRing(), list[tuple[str, Any]]()
    counted, reader = list[Any](), Reader("a", seen)

    def fail(_event: Event, _times: int) -> None:
        raise ValueError

    event_sink.count(reader, {TaskPolled: fail, RateLimitAllowed: lambda event, _: counted.append(event)})
    event_sink.emit(TaskPolled("a", "b"))
    event_sink.emit(RateLimitAllowed("a", "b"))
    event_sink.fold()
    assert seen == [("a failed", TaskPolled("a", "b"))]
    assert counted == [RateLimitAllowed("a", "b")]


# --- as it was -------------------------------------------------------------------------------------------------------


def test_an_annotation_that_fails_is_logged_and_the_event_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Any) -> None:
        raise ValueError("secret")

    event_sink, seen = EventRing(), list[tuple[str, Any]]()
    reader = Reader("a", seen)
    event_sink.subscribe(reader, of(reader.note, SessionLost))
    event_sink.annotate({SessionLost: fail})
    event_sink.emit(LOST)
    event_sink.fold()
    assert seen == [("a", LOST)]
    assert "a span got no annotation" in caplog.text
    assert "secret" not in caplog.text


def test_a_reader_learns_when_an_event_happened_and_log_lines_name_its_request() -> None:
    clock = ManualClock()
    event_sink, seen = EventRing(clock), list[Any]()
    event_sink.subscribe(
        Reader("a", []), of(lambda _: seen.append((event_sink.now, event_sink.elapsed, current())), SessionLost)
    )
    request_context = RequestContext("id", "192.0.2.7", "POST", "/m")
    with in_request(request_context):
        event_sink.emit(LOST)
    clock.advance(timedelta(seconds=1))
    event_sink.emit(LOST)
    clock.advance(timedelta(seconds=1))
    event_sink.fold()
    assert seen == [(EPOCH, 0.0, request_context), (EPOCH + timedelta(seconds=1), 1.0, None)]
    assert current() is None


def test_of_an_event_that_is_shown_with_its_request_the_request_is_as_it_was() -> None:
    event_sink, seen = EventRing(), list[Any]()
    event_sink.subscribe(Reader("a", []), of(lambda _: seen.append(current()), SessionLost, LateAnswerDropped))
    event_sink.record({SessionLost, RequestContext})
    request_context = RequestContext("id", "192.0.2.7", "POST", "/m", "host/1.0")
    request_context.mount, request_context.revision = "reports", "2025-11-25"
    with in_request(request_context):
        event_sink.emit(LOST)
        event_sink.emit(LateAnswerDropped("m"))
        request_context.task, request_context.refusal, request_context.revision = "t", "rate", "2025-06-18"
    event_sink.fold()
    then, now = seen
    assert now is request_context
    assert (then.id, then.agent, then.mount) == ("id", "host/1.0", "reports")
    assert (then.task, then.refusal, then.revision) == (None, None, "2025-11-25")


def test_of_an_event_in_the_call_of_a_task_no_copy_is_made_of_the_context() -> None:
    event_sink, seen = EventRing(), list[Any]()
    event_sink.subscribe(Reader("a", []), of(lambda _: seen.append(current()), SessionLost))
    event_sink.record({SessionLost})
    context = RequestContext("id", "192.0.2.7", "POST", "/m").for_background()
    with in_request(context):
        event_sink.emit(LOST)
    event_sink.fold()
    assert seen == [context]


def large_request(size: int) -> RequestContext:
    request_context = RequestContext("id", "192.0.2.7", "POST", "/m")
    text = f'{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{"x" * size}"}}}}'
    request_context.message = parse(text.encode(), max_depth=9)
    return request_context


async def test_large_messages_wait_together_up_to_a_size_and_are_let_go_of_together() -> None:
    event_sink, texts = EventRing(), list[int]()
    event_sink.subscribe(Reader("a", []), of(lambda each: texts.append(len(each.message.text)), RequestContext))
    event_sink.record({RequestContext})
    event_sink.start()
    size = MAX_PAYLOADS // 4
    requests = [large_request(size) for _ in range(8)]
    read: list[int] = []
    for each in requests:
        event_sink.emit(each)
        read.append(len(texts))
    # Each is a little larger than a quarter.
    assert read == [0, 0, 0, 4, 4, 4, 4, 8]
    assert min(texts) > size
    assert not any(each.message.params for each in requests if each.message is not None)
    last = large_request(LARGE_MESSAGE)
    event_sink.emit(last)
    await eventually(lambda: len(texts) == 9)
    assert isinstance(last.message, Request)
    assert last.message.params == {}
    event_sink.stop()


def test_a_large_message_does_not_wait_without_a_timer_and_is_let_go_of() -> None:
    event_sink, texts = EventRing(), list[int]()
    event_sink.subscribe(Reader("a", []), of(lambda each: texts.append(len(each.message.text)), RequestContext))
    for size, waits in ((1, True), (LARGE_MESSAGE, False)):
        request_context = RequestContext("id", "192.0.2.7", "POST", "/m")
        text = f'{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{"x" * size}"}}}}'
        request_context.message = parse(text.encode(), max_depth=9)
        with in_request(request_context):
            event_sink.emit(request_context)
        assert bool(texts) is not waits
        assert isinstance(request_context.message, Request)
        assert bool(request_context.message.params) is waits
    assert texts[1] > LARGE_MESSAGE
