"""Streams as their writers see them: with a log and without, while connections come and go."""

from typing import Final

import pytest

from helpers.manual_clock import ManualClock
from helpers.waiting import bounded
from taskgate.streams.event_log import KEEP, EventBudget, MemoryEventLog
from taskgate.streams.feed import PAUSE, Feed, LastingFeed
from taskgate.streams.line import Line
from taskgate.streams.trails import Place, Trails, read_place

MARK: Final = "0123456789ab"
LONE: Final = '"\ud800"'


def taken(line: Line) -> list[bytes]:
    """What waits on a line, taken from it."""
    pieces = [piece for piece, _ in line._waiting]
    line._waiting.clear()
    return pieces


def event(number: int, text: str) -> bytes:
    return f"id: p1-{MARK}-{number}\nevent: message\ndata: {text}\n\n".encode()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def trails(clock: ManualClock) -> Trails:
    return Trails(mark=MARK, log=MemoryEventLog(clock, budget=EventBudget(), caller="context"), clock=clock)


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def lasting(trails: Trails, line: Line) -> LastingFeed:
    feed = trails.open("p", line)
    assert taken(line) == [f"id: p1-{MARK}-0\ndata: \n\n".encode()]
    return feed


async def test_a_plain_stream_is_over_with_its_connection(line: Line) -> None:
    feed, losses = Feed(line), list[str]()
    feed.when_lost(lambda: losses.append("lost"))
    assert feed.put("1")
    assert feed.put_now("2")
    assert (feed.closed, feed.is_given_up) == (False, False)
    feed.lost(Line())
    assert not feed.closed
    feed.lost(line)
    assert (feed.closed, feed.is_given_up, line.closed, losses) == (True, True, True, ["lost"])
    assert not feed.put("3")
    assert not feed.put_now("3")
    assert taken(line) == [b"event: message\ndata: 1\n\n", b"event: message\ndata: 2\n\n"]
    async with bounded():
        await feed.ended()
    feed.finish("late")
    assert losses == ["lost"]


@pytest.mark.parametrize(("last", "said"), [("1", [b"event: message\ndata: 1\n\n"]), (None, [])])
def test_a_plain_stream_ends_with_its_last_message(line: Line, last: str | None, said: list[bytes]) -> None:
    Feed(line).finish(last)
    assert (line.closed, taken(line)) == (True, said)


def test_a_plain_stream_ends_with_what_cannot_be_written(line: Line) -> None:
    feed = Feed(line)
    assert not feed.put(LONE)
    assert (feed.closed, taken(line)) == (True, [])


def test_who_is_told_no_more_is_not_told(line: Line) -> None:
    feed, losses = Feed(line), list[str]()

    def note() -> None:
        losses.append("lost")

    feed.when_lost(note)
    feed.forget(note)
    feed.forget(note)
    feed.close()
    assert losses == []


def test_a_host_too_slow_loses_its_connection() -> None:
    slow = Line(10)
    feed = Feed(slow)
    assert feed.put('"a large one is taken where nothing waits"')
    assert not feed.put("2")
    assert feed.closed


def test_a_lasting_stream_goes_on_without_a_connection(lasting: LastingFeed, line: Line) -> None:
    assert lasting.put("1")
    lasting.lost(line)
    assert (lasting.closed, lasting.is_given_up) == (True, False)
    assert lasting.put("2")
    assert not lasting.put_now("question")
    assert lasting.missed_since(0) == [event(1, "1"), event(2, "2")]
    assert taken(line) == [event(1, "1")]
    lasting.finish("3")
    assert not lasting.put("4")
    lasting.finish("4")
    assert lasting.missed_since(2) == [event(3, "3")]


def test_a_lasting_stream_says_when_to_come_back_unless_it_is_over(lasting: LastingFeed, line: Line) -> None:
    lasting.close()
    assert taken(line) == [PAUSE]
    lasting.attach(again := Line(), [])
    lasting.finish(None)
    assert (again.closed, taken(again)) == (True, [])
    assert lasting.missed_since(0) == []


def test_a_second_connection_ends_the_first_before_it_has_anything(lasting: LastingFeed, line: Line) -> None:
    order: list[tuple[bool, bool]] = []
    lasting.put("1")
    second = Line()
    lasting.when_lost(lambda: order.append((line.is_cut, lasting.closed)))
    lasting.attach(second, lasting.missed_since(0) or [])
    assert (order, taken(line), line.closed) == ([(True, True)], [], True)
    lasting.lost(line)
    assert not lasting.closed
    lasting.put("2")
    assert taken(second) == [event(1, "1"), event(2, "2")]


def test_what_a_slow_host_did_not_get_is_there_when_it_comes_back(trails: Trails) -> None:
    slow = Line(100)
    feed = trails.open("p", slow)
    for word in ("1" * 50, "2" * 50, "3" * 50):
        assert feed.put(word)
    waiting = taken(slow)
    assert waiting[-1] == PAUSE
    assert feed.closed
    assert feed.missed_since(0) == [event(number, f"{number}" * 50) for number in (1, 2, 3)]


def test_a_lasting_stream_is_given_up_for_what_cannot_be_written(lasting: LastingFeed) -> None:
    assert not lasting.put(LONE)
    assert (lasting.is_given_up, lasting.closed) == (True, True)


def test_streams_are_found_by_their_events(trails: Trails, lasting: LastingFeed) -> None:
    lasting.put("1")
    place = Place(f"p1-{MARK}", 0)
    found = trails.find(place)
    assert found is not None
    assert (found.feed, found.missed, trails.knows(place)) == (lasting, [event(1, "1")], True)
    assert trails.find(place._replace(number=2)) is None
    lasting.finish("2")
    found = trails.find(place)
    assert found is not None
    assert (found.feed, found.missed, trails.knows(place)) == (None, [event(1, "1"), event(2, "2")], False)
    trails.sweep()
    assert trails.find(place) == found
    assert trails.find(Place("p2-" + MARK, 0)) is None


@pytest.mark.parametrize(("kind", "optional", "goes_on"), [("p", False, True), ("p", True, False), ("g", False, False)])
def test_what_nobody_comes_back_for_is_given_up_but_never_a_call(
    trails: Trails, clock: ManualClock, kind: str, optional: bool, goes_on: bool
) -> None:
    line, told = Line(), list[str]()
    feed = trails.open("p" if kind == "p" else "g", line)
    if optional:
        feed.when_given_up(lambda: told.append("given up"))
    feed.put("1")
    clock.advance(KEEP * 2)
    trails.sweep()
    assert not feed.is_given_up
    feed.lost(line)
    clock.advance(KEEP / 2)
    trails.sweep()
    assert not feed.is_given_up
    feed.attach(again := Line(), [])
    clock.advance(KEEP)
    trails.sweep()
    assert not feed.is_given_up
    feed.lost(again)
    clock.advance(KEEP)
    trails.sweep()
    assert feed.is_given_up is not goes_on
    assert told == (["given up"] if optional else [])
    assert trails.knows(Place(feed.name, 0)) is goes_on


@pytest.mark.parametrize("id_", [f"p1-{MARK}-0", f"g12-{MARK}-34567"])
def test_an_id_says_its_place(id_: str) -> None:
    place = read_place(id_)
    assert place is not None
    assert f"{place.stream}-{place.number}" == id_
    assert place.is_of_get is id_.startswith("g")


@pytest.mark.parametrize(
    "id_", ["", f"p1-{MARK}", f"p1-{MARK}-", f"p0-{MARK}-1", f"p1-{MARK}-01", f"p1-{MARK}-1\n", f"p1-{MARK.upper()}-1"]
)
def test_what_is_no_id_of_ours_says_nothing(id_: str) -> None:
    assert read_place(id_) is None
