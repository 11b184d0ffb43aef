"""What is known of a server by how it did when it was last needed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any, Literal

import orjson
import pytest

from helpers.server import error
from helpers.server.in_process import ScriptedChannels
from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream.base import Outgoing
from taskgate.upstream.duplex.passive_health import PassiveHealth
from taskgate.upstream.duplex.session import ChannelSession
from taskgate.upstream.duplex.transport import ChannelTransport

Comes = Literal["welcome", "error"] | UpstreamFailed | None
"""What comes of a request: an answer, a failure, or None for nothing at all."""


class Known:
    """A server, and what is told of it."""

    def __init__(self) -> None:
        self.program = ScriptedChannels(shares=False)
        self.told: list[bool] = []
        self.causes: list[str | None] = []
        self.health = PassiveHealth(self.note)
        self.transport = ChannelTransport(self.program, self.health)
        self.sessions: list[ChannelSession] = []

    def note(self, up: bool, cause: str | None) -> None:
        """Take what is told of it."""
        self.told.append(up)
        self.causes.append(cause)

    async def asked(self, method: str, *comes: Comes, **more: Any) -> bool | None:
        """What is known once it was asked that, as often as something comes of it."""
        for each in comes:
            self.program.refuses = each if isinstance(each, UpstreamFailed) else None
            self.program.taking = asyncio.Event() if each is None else None
            self.program.methods.clear()
            if each == "error":
                self.program.methods[method] = error(-32601, "no")
            outgoing = Outgoing(verb="POST", headers={}, body=_request(method), **more)
            with suppress(UpstreamFailed, TimeoutError):
                async with bounded(), asyncio.timeout(0.05):
                    if method == "initialize":
                        (await self.transport.open(outgoing, self.sessions.append)).release()
                    else:
                        (await self.transport.send(outgoing)).release()
        return self.health.up


def _request(method: str) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}})


@pytest.fixture
async def server() -> AsyncIterator[Known]:
    known = Known()
    yield known
    await known.transport.close()


def failure(reason: UpstreamReason, *, dispatched: bool = True) -> UpstreamFailed:
    return UpstreamFailed(reason, "it failed", dispatched=dispatched)


AWAY = failure(UpstreamReason.UNREACHABLE, dispatched=False)
SILENT = failure(UpstreamReason.TIMEOUT)


async def test_a_server_is_up_that_welcomed_a_session_and_what_is_no_news_is_not_told(server: Known) -> None:
    assert server.health.up is None
    assert await server.asked("initialize", "welcome", "welcome") is True
    assert await server.asked("initialize", AWAY, AWAY) is False
    assert await server.asked("initialize", "welcome") is True
    assert server.told == [True, False, True]


@pytest.mark.parametrize(
    "comes",
    [
        SILENT,
        failure(UpstreamReason.CLOSED),
        failure(UpstreamReason.CLOSED, dispatched=False),
        failure(UpstreamReason.MALFORMED),
    ],
    ids=["silent", "ended", "ended at once", "unreadable"],
)
async def test_one_whose_handshake_failed_is_down(server: Known, comes: UpstreamFailed) -> None:
    assert await server.asked("initialize", comes) is False


async def test_one_that_says_nothing_is_down_whoever_ends_the_wait_for_it(server: Known) -> None:
    assert await server.asked("initialize", None, first_byte=timedelta(milliseconds=50)) is False


async def test_that_a_wait_is_given_up_sooner_says_nothing(server: Known) -> None:
    assert await server.asked("initialize", None, first_byte=timedelta(seconds=20)) is None
    assert await server.asked("initialize", None) is None


async def test_that_a_turn_was_waited_for_in_vain_says_nothing(server: Known) -> None:
    assert await server.asked("initialize", failure(UpstreamReason.TIMEOUT, dispatched=False)) is None


async def test_one_refusal_may_be_of_the_other_era_and_a_second_one_is_down(server: Known) -> None:
    assert await server.asked("initialize", "error") is None
    assert await server.asked("server/discover", "error") is None
    assert await server.asked("tools/call", "error") is True
    assert await server.asked("initialize", "error") is True
    assert await server.asked("initialize", "error", "error") is False
    assert server.told == [True, False]


async def test_of_the_modern_era_an_answer_is_what_says_that_it_is_up(server: Known) -> None:
    assert await server.asked("tools/call", SILENT, failure(UpstreamReason.REFUSED)) is None
    assert await server.asked("tools/call", "error", SILENT) is True
    assert await server.asked("tools/call", AWAY) is False


async def test_what_goes_on_in_a_session_and_what_only_listens_says_nothing(server: Known) -> None:
    assert await server.asked("initialize", "welcome") is True
    server.program.lines[-1].exit()
    with pytest.raises(UpstreamFailed):
        await server.sessions[0].ask(Outgoing(verb="POST", headers={}, body=_request("tools/call")))
    assert await server.asked("subscriptions/listen", AWAY, only_listens=True) is True
    assert server.told == [True]


async def test_what_fails_because_it_is_closed_is_no_news(server: Known) -> None:
    await server.asked("initialize", "welcome")
    close = server.program.close

    async def fail() -> None:
        await server.asked("initialize", failure(UpstreamReason.CLOSED))
        await close()

    server.program.close = fail  # type: ignore[method-assign]
    async with bounded():
        await server.transport.close()
    assert server.told == [True]
