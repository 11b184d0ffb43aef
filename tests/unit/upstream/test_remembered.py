"""What is known of a server by how it did when it was last needed."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import orjson
import pytest

from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream.base import Incoming, Outgoing
from taskgate.upstream.duplex.pending import Status
from taskgate.upstream.remembered import RememberedTransport


class Welcome(Status):
    """An answer that has a session."""

    session = "one"


@dataclass
class Scripted:
    """ResponsePeek with what comes next, and waits for ever where that is None; see Transport."""

    script: list[Incoming | UpstreamFailed | None] = field(default_factory=list)
    on_close: Callable[[], Any] | None = None

    async def send(self, outgoing: Outgoing) -> Incoming:
        comes = self.script.pop(0)
        if comes is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(comes, UpstreamFailed):
            raise comes
        assert comes is not None
        return comes

    async def close(self) -> None:
        self.script.clear()
        if self.on_close is not None:
            await self.on_close()


@dataclass
class Known:
    """A server, and what is told of it."""

    inner: Scripted = field(default_factory=Scripted)
    told: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.transport = RememberedTransport(self.inner, self.told.append)

    async def asked(self, method: str, *comes: Incoming | UpstreamFailed | None, **more: Any) -> bool | None:
        """What is known once it was asked that, as often as something comes of it."""
        for each in comes:
            self.inner.script.append(each)
            body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method})
            with suppress(UpstreamFailed, TimeoutError):
                async with bounded(), asyncio.timeout(0.05):
                    await self.transport.send(Outgoing(**{"verb": "POST", "headers": {}, "body": body} | more))
        return self.transport.up


@pytest.fixture
def server() -> Known:
    return Known()


def failure(reason: UpstreamReason, *, dispatched: bool = True) -> UpstreamFailed:
    return UpstreamFailed(reason, "it failed", dispatched=dispatched)


AWAY = failure(UpstreamReason.UNREACHABLE, dispatched=False)
SILENT = failure(UpstreamReason.TIMEOUT)
ANSWER = Status(200)


async def test_a_server_is_up_that_welcomed_a_session_and_what_is_no_news_is_not_told(server: Known) -> None:
    assert server.transport.up is None
    assert await server.asked("initialize", Welcome(200), Welcome(200)) is True
    assert await server.asked("initialize", AWAY, AWAY) is False
    assert await server.asked("initialize", Welcome(200)) is True
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
    assert await server.asked("initialize", ANSWER) is None
    assert await server.asked("server/discover", ANSWER) is None
    assert await server.asked("tools/call", ANSWER) is True
    assert await server.asked("initialize", ANSWER) is True
    assert await server.asked("initialize", ANSWER, ANSWER) is False
    assert server.told == [True, False]


async def test_of_the_modern_era_an_answer_is_what_says_that_it_is_up(server: Known) -> None:
    assert await server.asked("tools/call", SILENT, Status(404)) is None
    assert await server.asked("tools/call", ANSWER, SILENT) is True
    assert await server.asked("tools/call", AWAY) is False


async def test_what_goes_on_in_a_session_and_what_only_listens_says_nothing(server: Known) -> None:
    assert await server.asked("tools/call", ANSWER, AWAY, headers={"Mcp-Session-Id": "one"}) is None
    assert await server.asked("subscriptions/listen", AWAY, only_listens=True) is None
    assert await server.asked("", Status(405), body=None) is None


async def test_what_fails_because_it_is_closed_is_no_news(server: Known) -> None:
    await server.asked("initialize", Welcome(200))

    async def fail() -> None:
        await server.asked("initialize", failure(UpstreamReason.CLOSED))

    server.inner.on_close = fail
    async with bounded():
        await server.transport.close()
    assert server.told == [True]
