"""What is said by other processes of sessions that are alive here, or are not."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.manual_clock import ManualClock
from helpers.recording_upstream import RecordingSession
from helpers.waiting import eventually
from taskgate.cluster import messages
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.vocabulary import LOGGING_SET_LEVEL, RESOURCES_SUBSCRIBE
from taskgate.stores.memory import MemoryStore
from unit.cluster.recording_bus import A, B
from unit.lifecycle.replicated import Replica

NOTE = '{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}'


def calls_of(upstream: RecordingSession) -> list[tuple[str, str]]:
    """Method and parameters of the requests to the server."""
    return [(call.method, call.params.head) for call in upstream.recorded("call")]


async def away() -> None:
    """What a request comes to while the server is away."""
    raise UpstreamFailed(UpstreamReason.UNREACHABLE, "The server is away", dispatched=False)


@pytest.fixture
async def here(clock: ManualClock) -> AsyncIterator[Replica]:
    replica = Replica(MemoryStore(), clock)
    yield replica
    await replica.sessions.close()


async def test_a_notification_reaches_the_server_here(here: Replica) -> None:
    mine = await here.opened()
    upstream: Any = mine.upstream
    here.said.receive(messages.ServerNotification(mine.id, NOTE))
    (told,) = upstream.recorded("tell")
    assert told.text == NOTE


async def test_a_level_is_asked_for_here_too_and_told_to_who_comes_later(here: Replica) -> None:
    mine = await here.opened()
    upstream: Any = mine.upstream
    here.said.receive(messages.SessionSetting(mine.id, LOGGING_SET_LEVEL, "error"))
    await eventually(lambda: calls_of(upstream) == [(LOGGING_SET_LEVEL, '{"level":"error"}')])
    here.said.receive(messages.SessionRevived(mine.id), B)
    assert here.said.take_sent() == [(messages.SessionSetting(mine.id, LOGGING_SET_LEVEL, "error"), B)]


async def test_a_server_that_is_away_is_not_asked_again(here: Replica) -> None:
    mine = await here.opened()
    upstream: Any = mine.upstream
    upstream.answer = away
    here.said.receive(messages.SessionSetting(mine.id, LOGGING_SET_LEVEL, "error"))
    await eventually(lambda: len(calls_of(upstream)) == 1)


async def test_who_lets_go_of_it_hands_its_subscriptions_to_who_has_its_stream(here: Replica) -> None:
    mine = await here.opened()
    upstream: Any = mine.upstream
    here.said.receive(messages.SessionSetting(mine.id, RESOURCES_SUBSCRIBE, "file:///a"))
    await eventually(lambda: len(calls_of(upstream)) == 1)
    here.said.receive(messages.GetStreamState(mine.id, True), B)
    await here.sessions.close()
    assert here.said.take_sent() == [(messages.SessionSetting(mine.id, RESOURCES_SUBSCRIBE, "file:///a"), B)]


async def test_a_cancel_is_for_the_call_of_that_session(here: Replica) -> None:
    mine = await here.opened()
    here.said.receive(messages.RequestCancelled(mine.id, 7))
    assert here.cancelled == [(mine.id, 7)]


async def test_what_is_said_of_a_session_that_is_not_alive_here_does_nothing(here: Replica) -> None:
    for word in (
        messages.SessionEnded("s"),
        messages.SessionRevived("s"),
        messages.GetStreamState("s", True),
        messages.GetStreamMessage("s", "m"),
        messages.GetStreamQuestion("s", "m"),
        messages.SessionSetting("s", LOGGING_SET_LEVEL, "error"),
        messages.QuestionAnswer("s", f"question-{A}-1", "{}"),
        messages.QuestionProgress("s", f"question-{A}-1", NOTE),
        messages.RequestCancelled("s", 7),
        messages.ServerNotification("s", NOTE),
    ):
        here.said.receive(word)
    assert here.said.take_sent() == []
    assert here.cancelled == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"jsonrpc":"2.0","id":1,"result":{}}', "\ud800"])
async def test_what_is_no_notification_is_told_to_no_server(here: Replica, text: str) -> None:
    mine = await here.opened()
    upstream: Any = mine.upstream
    here.question = upstream
    here.said.receive(messages.ServerNotification(mine.id, text))
    here.said.receive(messages.QuestionProgress(mine.id, f"question-{A}-1", text))
    here.said.receive(
        messages.InputProgress("reports", ["anonymous"], LegacyDownstream("1").input_id("t" * 32, "input-1"), text)
    )
    assert upstream.recorded("tell") == []


async def test_what_is_said_of_an_input_is_for_the_task_that_runs_here(here: Replica) -> None:
    id_ = LegacyDownstream("1").input_id("t" * 32, "input-1")
    here.said.receive(messages.InputProgress("reports", ["anonymous"], id_, NOTE))
    here.question = RecordingSession()
    here.said.receive(messages.InputProgress("reports", ["anonymous"], id_, NOTE))
    here.said.receive(messages.InputProgress("reports", ["anonymous"], "none of ours", NOTE))
    (told,) = here.question.recorded("tell")
    assert told.text == NOTE
