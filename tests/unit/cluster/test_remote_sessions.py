"""The state of a session at other replicas: its GET streams and its settings."""

import json
from typing import Any

import pytest

from taskgate.cluster.messages import GetStreamMessage, GetStreamQuestion, GetStreamState, SessionSetting
from taskgate.cluster.remote_sessions import SETTING_METHODS, RemoteStreams, SessionSettings
from taskgate.protocol.messages import Params
from taskgate.protocol.vocabulary import LOGGING_SET_LEVEL, RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE
from taskgate.upstream.context import MAX_URI, MAX_URIS
from unit.cluster.recording_bus import B, C, RecordingBus


class Stream:
    """A GET stream of this process; one that is `full` takes nothing."""

    def __init__(self, *, full: bool = False) -> None:
        self.is_closed = False
        self.full = full
        self.received: list[str] = []

    def send_now(self, message: str) -> bool:
        if self.is_closed or self.full:
            return False
        self.received.append(message)
        return True


class Scene:
    """One session with its streams here, and what is said of them."""

    def __init__(self) -> None:
        self.bus = RecordingBus()
        self.local: dict[Stream, None] = {}
        bus: Any = self.bus
        self.remote = RemoteStreams("s", bus, self.local)

    def open(self, *, full: bool = False) -> Stream:
        stream = Stream(full=full)
        self.local[stream] = None
        self.remote.on_local_change()
        return stream

    def end(self, stream: Stream) -> None:
        stream.is_closed = True
        self.local.pop(stream)
        self.remote.on_local_change(stream)


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- announcements of the streams here --------------------------------------------------------------------------------


def test_the_others_are_told_of_the_first_stream_and_of_the_end_of_the_last(scene: Scene) -> None:
    one = scene.open()
    assert scene.bus.take_sent() == [(GetStreamState("s", True), None)]
    two = scene.open()
    scene.end(one)
    assert scene.bus.take_sent() == []
    scene.end(two)
    assert scene.bus.take_sent() == [(GetStreamState("s", False), None)]


def test_a_stream_that_lost_its_connection_is_none(scene: Scene) -> None:
    stream = scene.open()
    scene.bus.take_sent()
    stream.is_closed = True
    scene.remote.on_local_change(stream)
    assert scene.bus.take_sent() == [(GetStreamState("s", False), None)]
    stream.is_closed = False
    scene.remote.on_local_change()
    assert scene.bus.take_sent() == [(GetStreamState("s", True), None)]


def test_who_comes_later_is_told_if_there_is_one(scene: Scene) -> None:
    scene.remote.announce(B)
    assert scene.bus.take_sent() == []
    scene.open()
    scene.bus.take_sent()
    scene.remote.announce(B)
    assert scene.bus.take_sent() == [(GetStreamState("s", True), B)]


def test_alone_nothing_is_said() -> None:
    ours: dict[Stream, None] = {Stream(): None}
    alone = RemoteStreams("s", None, ours)
    alone.on_local_change()
    alone.announce(B)
    alone.on_remote_change(B, is_open=True)
    assert alone.newest is None
    assert not alone.publish("m")
    assert alone.ask("m") is None


# --- messages and questions for the streams elsewhere -----------------------------------------------------------------


def test_what_has_no_stream_here_goes_to_the_newest_of_theirs(scene: Scene) -> None:
    assert not scene.remote.publish("m")
    scene.remote.on_remote_change(B, is_open=True)
    scene.remote.on_remote_change(C, is_open=True)
    scene.remote.on_remote_change(B, is_open=True)
    assert scene.remote.publish("m")
    assert scene.bus.take_sent() == [(GetStreamMessage("s", "m"), B)]
    scene.remote.on_remote_change(B, is_open=False)
    assert scene.remote.publish("m")
    assert scene.bus.take_sent() == [(GetStreamMessage("s", "m"), C)]


def test_a_question_is_carried_there_and_known_by_the_stream_it_is_on(scene: Scene) -> None:
    assert scene.remote.ask("q") is None
    scene.remote.on_remote_change(B, is_open=True)
    carrying = scene.remote.ask("q")
    assert scene.bus.take_sent() == [(GetStreamQuestion("s", "q"), B)]
    assert scene.remote.on_remote_change(B, is_open=False) is carrying
    assert scene.remote.on_remote_change(B, is_open=False) is None


def test_it_is_taken_back_where_it_was_asked(scene: Scene) -> None:
    scene.remote.on_remote_change(B, is_open=True)
    carrying = scene.remote.ask("q")
    assert carrying is not None
    scene.remote.on_remote_change(C, is_open=True)
    scene.bus.take_sent()
    carrying.send("never mind")
    assert scene.bus.take_sent() == [(GetStreamMessage("s", "never mind"), B)]


# --- questions of other replicas --------------------------------------------------------------------------------------


def test_a_question_of_another_is_on_the_newest_stream_that_takes_it(scene: Scene) -> None:
    streams = [scene.open(), scene.open(), scene.open(full=True)]
    scene.remote.ask_locally("q", B)
    assert [stream.received for stream in streams] == [[], ["q"], []]


def test_where_no_stream_takes_it_the_other_is_told_at_once(scene: Scene) -> None:
    scene.remote.ask_locally("q", B)
    assert scene.bus.take_sent() == [(GetStreamState("s", False), B)]


def test_when_its_stream_ends_the_other_is_told_to_ask_again(scene: Scene) -> None:
    first, second = scene.open(), scene.open()
    scene.remote.ask_locally("q", B)
    scene.bus.take_sent()
    scene.end(second)
    assert scene.bus.take_sent() == [(GetStreamState("s", False), B), (GetStreamState("s", True), B)], (
        "there is another one for it"
    )
    scene.remote.ask_locally("q", B)
    scene.end(first)
    assert scene.bus.take_sent() == [(GetStreamState("s", False), B), (GetStreamState("s", False), None)]


def test_nobody_is_told_of_a_stream_that_carried_nothing_of_theirs(scene: Scene) -> None:
    scene.open()
    second = scene.open()
    scene.bus.take_sent()
    scene.end(second)
    assert scene.bus.take_sent() == []


# --- settings ---------------------------------------------------------------------------------------------------------


def params(**members: Any) -> Params:
    return Params(json.dumps(members))


@pytest.fixture
def bus() -> RecordingBus:
    return RecordingBus()


@pytest.fixture
def settings(bus: RecordingBus) -> SessionSettings:
    recording: Any = bus
    return SessionSettings("s", recording)


def level(name: str) -> SessionSetting:
    return SessionSetting("s", LOGGING_SET_LEVEL, name)


def subscribed(uri: str) -> SessionSetting:
    return SessionSetting("s", RESOURCES_SUBSCRIBE, uri)


def unsubscribed(uri: str) -> SessionSetting:
    return SessionSetting("s", RESOURCES_UNSUBSCRIBE, uri)


def test_all_are_told_of_a_level_and_whoever_comes_later(settings: SessionSettings, bus: RecordingBus) -> None:
    settings.announce(B)
    assert bus.take_sent() == []
    settings.record(LOGGING_SET_LEVEL, params(level="error"))
    assert bus.take_sent() == [(level("error"), None)]
    settings.announce(B)
    assert bus.take_sent() == [(level("error"), B)]


def test_a_level_that_was_heard_of_is_asked_for_here_and_told_on(settings: SessionSettings, bus: RecordingBus) -> None:
    asked = settings.on_remote_change(level("debug"))
    assert asked is not None
    assert json.loads(asked.head) == {"level": "debug"}
    assert bus.take_sent() == [], "who said it has said it to all"
    settings.announce(B)
    assert bus.take_sent() == [(level("debug"), B)]


def test_one_process_is_subscribed_and_hands_that_over(settings: SessionSettings, bus: RecordingBus) -> None:
    settings.record(RESOURCES_SUBSCRIBE, params(uri="file:///a"))
    settings.record(RESOURCES_SUBSCRIBE, params(uri="file:///a"))
    settings.record(RESOURCES_SUBSCRIBE, params(uri="file:///b"))
    settings.announce(B)
    assert bus.take_sent() == []
    settings.hand_over(B)
    assert bus.take_sent() == [(subscribed("file:///a"), B), (subscribed("file:///b"), B)]


def test_what_is_handed_over_is_asked_for_once(settings: SessionSettings, bus: RecordingBus) -> None:
    asked = settings.on_remote_change(subscribed("file:///a"))
    assert asked is not None
    assert json.loads(asked.head) == {"uri": "file:///a"}
    assert settings.on_remote_change(subscribed("file:///a")) is None
    settings.hand_over(B)
    assert bus.take_sent() == [(subscribed("file:///a"), B)]


def test_the_end_of_a_subscription_reaches_the_process_that_has_it(
    settings: SessionSettings, bus: RecordingBus
) -> None:
    settings.record(RESOURCES_UNSUBSCRIBE, params(uri="file:///a"))
    assert bus.take_sent() == [(unsubscribed("file:///a"), None)]
    assert settings.on_remote_change(unsubscribed("file:///a")) is None, "another has it"
    settings.record(RESOURCES_SUBSCRIBE, params(uri="file:///a"))
    asked = settings.on_remote_change(unsubscribed("file:///a"))
    assert asked is not None
    assert json.loads(asked.head) == {"uri": "file:///a"}
    settings.hand_over(B)
    assert bus.take_sent() == []


def test_what_was_ended_here_is_not_handed_over(settings: SessionSettings, bus: RecordingBus) -> None:
    settings.record(RESOURCES_SUBSCRIBE, params(uri="file:///a"))
    settings.record(RESOURCES_UNSUBSCRIBE, params(uri="file:///a"))
    bus.take_sent()
    settings.hand_over(B)
    assert bus.take_sent() == []


@pytest.mark.parametrize("method", sorted(SETTING_METHODS))
@pytest.mark.parametrize("given", [None, params(), params(level="loud", uri=7)])
def test_what_says_nothing_is_not_kept(
    settings: SessionSettings, bus: RecordingBus, method: str, given: Params | None
) -> None:
    settings.record(method, given)
    settings.announce(B)
    settings.hand_over(B)
    assert bus.take_sent() == []


def test_no_more_is_kept_than_a_session_has_room_for(settings: SessionSettings, bus: RecordingBus) -> None:
    for number in range(MAX_URIS + 1):
        settings.record(RESOURCES_SUBSCRIBE, params(uri=f"file:///{number}"))
    assert settings.on_remote_change(subscribed("file:///more")) is None
    long = "x" * (MAX_URI + 1)
    settings.record(RESOURCES_UNSUBSCRIBE, params(uri=long))
    assert bus.take_sent() == []
    settings.hand_over(B)
    assert len(bus.take_sent()) == MAX_URIS


def test_a_name_that_is_too_long_is_not_kept(settings: SessionSettings, bus: RecordingBus) -> None:
    settings.record(RESOURCES_SUBSCRIBE, params(uri="x" * (MAX_URI + 1)))
    settings.hand_over(B)
    assert bus.take_sent() == []


def test_alone_nothing_is_kept(bus: RecordingBus) -> None:
    alone = SessionSettings("s", None)
    alone.record(LOGGING_SET_LEVEL, params(level="error"))
    alone.record(RESOURCES_SUBSCRIBE, params(uri="file:///a"))
    alone.on_remote_change(level("error"))
    alone.announce(B)
    alone.hand_over(B)
    assert alone.on_remote_change(unsubscribed("file:///a")) is None
