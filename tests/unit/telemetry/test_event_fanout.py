"""Each reader gets the events that it asked for, in order, whatever becomes of another reader."""

from collections.abc import Callable
from typing import Any

from taskgate.telemetry.events import Event, EventFanout, LeaseLost, SessionLost

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
    event_sink, seen = EventFanout(), list[tuple[str, Any]]()
    reader = Reader("a", seen)
    event_sink.subscribe(reader, of(reader.note, SessionLost))
    event_sink.emit(LeaseLost("task"))
    event_sink.emit(LOST)
    assert seen == [("a", LOST)]


def test_readers_and_their_parts_are_called_in_the_order_of_the_first_subscription() -> None:
    event_sink, seen = EventFanout(), list[tuple[str, Any]]()
    first, second = Reader("first", seen), Reader("second", seen)
    event_sink.subscribe(first, {})
    event_sink.subscribe(second, of(second.note, SessionLost))
    event_sink.subscribe(first, of(first.note, SessionLost), of(first.note, SessionLost, LeaseLost))
    event_sink.emit(LOST)
    assert seen == [("first", LOST), ("first", LOST), ("second", LOST)]


def test_a_subscription_replaces_the_one_before() -> None:
    event_sink, seen = EventFanout(), list[tuple[str, Any]]()
    reader = Reader("a", seen)
    event_sink.subscribe(reader, of(reader.note, SessionLost))
    event_sink.subscribe(reader, of(reader.note, LeaseLost))
    event_sink.emit(LOST)
    assert seen == []


def test_an_exception_in_one_handler_is_noted_by_its_reader_and_keeps_no_other_from_the_event() -> None:
    event_sink, seen = EventFanout(), list[tuple[str, Any]]()
    broken, sound = Reader("broken", seen), Reader("sound", seen)
    event_sink.subscribe(broken, of(broken.fail, SessionLost))
    event_sink.subscribe(sound, of(sound.note, SessionLost))
    event_sink.emit(LOST)
    assert seen == [("broken failed", LOST), ("sound", LOST)]


def test_a_handler_may_subscribe_again_while_it_is_called() -> None:
    event_sink, seen = EventFanout(), list[tuple[str, Any]]()
    reader, other = Reader("a", seen), Reader("b", seen)

    def leave(event: Event) -> None:
        reader.note(event)
        event_sink.subscribe(reader)

    event_sink.subscribe(reader, of(leave, SessionLost))
    event_sink.subscribe(other, of(other.note, SessionLost))
    event_sink.emit(LOST)
    event_sink.emit(LOST)
    assert seen == [("a", LOST), ("b", LOST), ("b", LOST)]
