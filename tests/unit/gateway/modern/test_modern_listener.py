"""What of all that a server says during a request reaches its host, and in what order."""

import json
from typing import cast

import pytest

from helpers.modern_schema import SUBSCRIPTION
from requirements import covers
from taskgate.gateway.listeners import Keepalives
from taskgate.gateway.modern.adapter import ModernListener
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.server_messages import text_progress
from taskgate.system.timer_wheel import TimerWheel
from unit.gateway.modern.calling import Talk, Wonder, Words, noted, said

WORDS = cast("ModernDownstream", Words())
KEEPALIVES = Keepalives(TimerWheel(60), 60)
PROGRESS = "notifications/progress"


def telling(talk: Talk, **more: object) -> ModernListener:
    """Who hears a request that says this of itself."""
    meta = said(**more)
    return ModernListener(talk, meta.progress_token, KEEPALIVES, WORDS, meta.log_level)


def progress(done: object) -> str:
    return f'{{"progress":{done}}}'


@pytest.mark.parametrize(
    ("server", "host"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([1, 1, 2], [1, 2]),
        ([3, 2, 4], [3, 4]),
        (["null", '"x"', 1], [1]),
        ([0.5, 0.25, -1, 0.75], [0.5, 0.75]),
    ],
)
def test_progress_grows_with_every_message(server: list[object], host: list[object]) -> None:
    talk = Talk()
    listener = telling(talk, progress_token="p")
    for done in server:
        listener.on_notification(noted(PROGRESS, progress(done)))
    assert talk.said == [f"{PROGRESS} {progress(done)} p" for done in host]


def test_without_a_token_no_progress_is_told_and_there_is_no_stream() -> None:
    talk = Talk()
    telling(talk).on_notification(noted(PROGRESS, progress(1)))
    assert talk.feed is None


@pytest.mark.parametrize(("level", "heard"), [("info", 1), (None, 0)])
def test_a_log_line_is_told_where_it_is_loud_enough(level: str | None, heard: int) -> None:
    talk = Talk()
    telling(talk, log_level=level).on_notification(noted("notifications/message"))
    assert len(talk.said) == heard


def test_what_is_not_about_the_request_is_dropped() -> None:
    talk = Talk()
    telling(talk, log_level="info", progress_token="p").on_notification(noted("notifications/tools/list_changed"))
    assert talk.feed is None


@pytest.mark.parametrize("level", [None, "info"])
@pytest.mark.parametrize("token", [None, "p"])
def test_what_is_said_of_an_extension_is_told_under_the_id_of_its_request(token: str | None, level: str | None) -> None:
    # X-EXT-23.
    talk = Talk()
    listener = ModernListener(talk, token, KEEPALIVES, WORDS, level, "h")
    listener.on_notification(noted("notifications/events/active", '{"cursor":null}'))
    assert talk.said == ['notifications/events/active {"cursor":null} None on h']


@pytest.mark.parametrize("id", ["h", 7])
def test_a_stream_of_an_extension_is_named_by_its_request_and_not_by_ours(id: str | int) -> None:
    talk = Talk()
    listener = ModernListener(talk, "p", KEEPALIVES, ModernDownstream("1"), None, id)
    listener.on_notification(
        noted("notifications/events/active", f'{{"_meta":{{"{SUBSCRIPTION}": 3 ,"a/b":1.0}},"cursor":"c"}}')
    )
    (text,) = talk.said
    params = f'{{"_meta":{{"{SUBSCRIPTION}": {json.dumps(id)} ,"a/b":1.0}},"cursor":"c"}}'
    assert text == f'{{"jsonrpc":"2.0","method":"notifications/events/active","params":{params}}}'


def test_what_is_said_of_an_extension_is_a_sign_of_life() -> None:
    talk = Talk()
    listener = ModernListener(talk, "p", KEEPALIVES, WORDS, None, "h")
    listener.on_notification(noted("notifications/events/heartbeat"))
    listener.live()
    listener.live()
    assert talk.said == ["notifications/events/heartbeat {} None on h", "alive 0.0 p"]


def test_a_host_that_takes_no_stream_is_told_nothing_of_an_extension_either() -> None:
    talk = Talk(accepts_stream=False)
    ModernListener(talk, None, KEEPALIVES, WORDS, None, "h").on_notification(noted("notifications/events/active"))
    assert talk.feed is None


def test_a_host_that_takes_no_stream_is_told_nothing() -> None:
    talk = Talk(accepts_stream=False)
    telling(talk, progress_token="p").on_notification(noted(PROGRESS, progress(1)))
    assert talk.feed is None


def test_signs_of_life_grow_as_progress_does_and_come_only_into_silence() -> None:
    talk = Talk()
    listener = telling(talk, progress_token="p")
    listener.live()
    listener.live()
    listener.on_notification(noted(PROGRESS, progress(0)))
    listener.on_notification(noted(PROGRESS, progress(7)))
    listener.live()
    listener.live()
    assert talk.said == ["alive 0.0 p", "alive 1e-06 p", f"{PROGRESS} {progress(7)} p", "alive 7.000001 p"]


@covers("M-PROG-1")
def test_what_a_server_says_in_words_is_told_after_signs_of_life_too() -> None:
    talk = Talk()
    listener = telling(talk, progress_token="p")
    for _ in range(3):
        listener.live()
    listener.on_notification(text_progress(4, "half of it", 1))
    listener.on_notification(text_progress(4, "most of it", 2, after=1))
    assert talk.said[3:] == [
        "half of it 3e-06 p",
        f"{PROGRESS} {text_progress(4, 'most of it', 2, after=1).params_text} p",
    ]
    telling(other := Talk()).on_notification(text_progress(4, "half of it", 1))
    assert other.feed is None


def test_without_a_token_the_stream_itself_is_the_sign_of_life() -> None:
    talk = Talk()
    telling(talk).live()
    assert talk.is_streaming
    assert talk.said == []


def test_a_server_is_listened_to_as_fast_as_its_host_reads() -> None:
    talk = Talk()
    listener = telling(talk)
    assert listener.clog() is None
    assert not talk.is_streaming
    talk.stream().clogged = "a wait"
    assert listener.clog() == "a wait"


def test_a_question_is_refused() -> None:
    question = Wonder()
    telling(Talk()).asked(question)
    assert question.replies == ["refused"]


def test_what_the_server_was_refused_for_want_of_is_kept() -> None:
    listener = telling(Talk())
    assert listener.missing == {}
    listener.refused({"roots": {}})
    listener.refused({"sampling": {}})
    assert listener.missing == {"roots": {}, "sampling": {}}
