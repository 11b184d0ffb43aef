"""The GET streams of a session that other processes have."""

from typing import Any

import pytest

from taskgate.cluster.messages import Asks, Listens, Published
from taskgate.cluster.streams import RemoteStreams
from unit.cluster.saying import B, C, Said


class Stream:
    """A GET stream of this process; one that is `full` takes nothing."""

    def __init__(self, *, full: bool = False) -> None:
        self.closed = False
        self.full = full
        self.heard: list[str] = []

    def put_now(self, message: str) -> bool:
        if self.closed or self.full:
            return False
        self.heard.append(message)
        return True


class Scene:
    """One session with its streams here, and what is said of them."""

    def __init__(self) -> None:
        self.said = Said()
        self.ours: dict[Stream, None] = {}
        bus: Any = self.said
        self.elsewhere = RemoteStreams("s", bus, self.ours)

    def open(self, *, full: bool = False) -> Stream:
        stream = Stream(full=full)
        self.ours[stream] = None
        self.elsewhere.moved()
        return stream

    def end(self, stream: Stream) -> None:
        stream.closed = True
        self.ours.pop(stream)
        self.elsewhere.moved(stream)


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- what is said of ours ------------------------------------------------------------------------------------------


def test_the_others_are_told_of_the_first_stream_and_of_the_end_of_the_last(scene: Scene) -> None:
    one = scene.open()
    assert scene.said.news() == [(Listens("s", True), None)]
    two = scene.open()
    scene.end(one)
    assert scene.said.news() == []
    scene.end(two)
    assert scene.said.news() == [(Listens("s", False), None)]


def test_a_stream_that_lost_its_connection_is_none(scene: Scene) -> None:
    stream = scene.open()
    scene.said.news()
    stream.closed = True
    scene.elsewhere.moved(stream)
    assert scene.said.news() == [(Listens("s", False), None)]
    stream.closed = False
    scene.elsewhere.moved()
    assert scene.said.news() == [(Listens("s", True), None)]


def test_who_comes_later_is_told_if_there_is_one(scene: Scene) -> None:
    scene.elsewhere.tell(B)
    assert scene.said.news() == []
    scene.open()
    scene.said.news()
    scene.elsewhere.tell(B)
    assert scene.said.news() == [(Listens("s", True), B)]


def test_alone_nothing_is_said() -> None:
    ours: dict[Stream, None] = {Stream(): None}
    alone = RemoteStreams("s", None, ours)
    alone.moved()
    alone.tell(B)
    alone.heard(B, is_open=True)
    assert alone.newest is None
    assert not alone.publish("m")
    assert alone.carry("m") is None


# --- what theirs are for -------------------------------------------------------------------------------------------


def test_what_has_no_stream_here_goes_to_the_newest_of_theirs(scene: Scene) -> None:
    assert not scene.elsewhere.publish("m")
    scene.elsewhere.heard(B, is_open=True)
    scene.elsewhere.heard(C, is_open=True)
    scene.elsewhere.heard(B, is_open=True)
    assert scene.elsewhere.publish("m")
    assert scene.said.news() == [(Published("s", "m"), B)]
    scene.elsewhere.heard(B, is_open=False)
    assert scene.elsewhere.publish("m")
    assert scene.said.news() == [(Published("s", "m"), C)]


def test_a_question_is_carried_there_and_known_by_the_stream_it_is_on(scene: Scene) -> None:
    assert scene.elsewhere.carry("q") is None
    scene.elsewhere.heard(B, is_open=True)
    carrying = scene.elsewhere.carry("q")
    assert scene.said.news() == [(Asks("s", "q"), B)]
    assert scene.elsewhere.heard(B, is_open=False) is carrying
    assert scene.elsewhere.heard(B, is_open=False) is None


def test_it_is_taken_back_where_it_was_asked(scene: Scene) -> None:
    scene.elsewhere.heard(B, is_open=True)
    carrying = scene.elsewhere.carry("q")
    assert carrying is not None
    scene.elsewhere.heard(C, is_open=True)
    scene.said.news()
    carrying.put("never mind")
    assert scene.said.news() == [(Published("s", "never mind"), B)]


# --- what ours are for ---------------------------------------------------------------------------------------------


def test_a_question_of_another_is_on_the_newest_stream_that_takes_it(scene: Scene) -> None:
    streams = [scene.open(), scene.open(), scene.open(full=True)]
    scene.elsewhere.ask("q", B)
    assert [stream.heard for stream in streams] == [[], ["q"], []]


def test_where_no_stream_takes_it_the_other_is_told_at_once(scene: Scene) -> None:
    scene.elsewhere.ask("q", B)
    assert scene.said.news() == [(Listens("s", False), B)]


def test_when_its_stream_ends_the_other_is_told_to_ask_again(scene: Scene) -> None:
    first, second = scene.open(), scene.open()
    scene.elsewhere.ask("q", B)
    scene.said.news()
    scene.end(second)
    assert scene.said.news() == [(Listens("s", False), B), (Listens("s", True), B)], "there is another one for it"
    scene.elsewhere.ask("q", B)
    scene.end(first)
    assert scene.said.news() == [(Listens("s", False), B), (Listens("s", False), None)]


def test_nobody_is_told_of_a_stream_that_carried_nothing_of_theirs(scene: Scene) -> None:
    scene.open()
    second = scene.open()
    scene.said.news()
    scene.end(second)
    assert scene.said.news() == []
