"""What the log says of a server that refuses commands or is down, outside of any request."""

import asyncio
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from redis.exceptions import OutOfMemoryError

from helpers.waiting import bounded
from taskgate.errors import StoreUnavailable
from taskgate.stores.redis.health import RedisHealth
from taskgate.stores.redis.records.store import Withdrawals
from taskgate.stores.redis.streams import StreamWatch

REQUEST: ContextVar[str | None] = ContextVar("REQUEST", default=None)
FULL = OutOfMemoryError("command not allowed")
CALM = 6.0
"""Seconds that are enough for a refusal to be over."""
OVER = "The task store accepts a command again that it refused: command not allowed"


@pytest.fixture
def health() -> RedisHealth:
    async def look() -> None: ...

    return RedisHealth(look)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records]


async def test_that_it_does_again_what_it_refused_is_told_once(
    health: RedisHealth, caplog: pytest.LogCaptureFixture
) -> None:
    health.report_refusal(FULL, "insert")
    health.report_refusal(FULL, "insert")
    await asyncio.sleep(CALM)
    for _ in range(3):
        health.report_success("insert")
    assert told(caplog) == ["The task store refuses a command: command not allowed", OVER]
    health.report_refusal(FULL, "insert")
    assert len(told(caplog)) == 3


async def test_what_was_never_refused_tells_nothing(health: RedisHealth, caplog: pytest.LogCaptureFixture) -> None:
    health.report_refusal(FULL, "insert")
    await asyncio.sleep(CALM)
    health.report_success("load")
    assert OVER not in told(caplog)


async def test_it_is_not_over_while_it_refuses_others_of_the_same_kind(
    health: RedisHealth, caplog: pytest.LogCaptureFixture
) -> None:
    health.report_refusal(FULL, "insert")
    await asyncio.sleep(CALM)
    health.report_refusal(FULL, "swap")
    await asyncio.sleep(CALM / 2)
    health.report_success("insert")
    assert OVER not in told(caplog)


async def test_that_it_can_be_used_again_is_told_in_nobody_s_name() -> None:
    named: list[str | None] = []

    async def look() -> None:
        named.append(REQUEST.get())

    health = RedisHealth(look)
    REQUEST.set("the first that met it")
    health.mark_down(ConnectionError())
    async with bounded():
        while not health.is_up:
            await asyncio.sleep(0)
    assert named == [None]


async def test_one_listens_for_the_growth_of_streams_in_nobody_s_name() -> None:
    named: list[str | None] = []

    def refuse() -> NoReturn:
        named.append(REQUEST.get())
        raise ConnectionError

    growth = StreamWatch(refuse)
    REQUEST.set("the first that waits")
    async with bounded():
        waiting = asyncio.create_task(growth.wait("channel", timedelta(hours=1)))
        while not named:
            await asyncio.sleep(0)
        await growth.close()
        await waiting
    assert named == [None]


async def test_inserts_are_withdrawn_in_nobody_s_name() -> None:
    named: list[str | None] = []

    class Refusing:
        def mark(self) -> str:
            return ""

        async def run(self, *_: Any, **__: Any) -> NoReturn:
            named.append(REQUEST.get())
            raise StoreUnavailable("down")

    nothing: Any = Refusing()
    withdrawals = Withdrawals(nothing, "", nothing)
    REQUEST.set("the first that is in doubt")
    withdrawals.add("task", "mark")
    await asyncio.sleep(2)
    await withdrawals.close()
    assert set(named) == {None}
