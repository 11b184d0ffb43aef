"""The gatehouse of now is asked, and the one before ends once it has judged whoever came to it."""

import asyncio
import gc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import aiohttp
import pytest

from helpers.waiting import bounded, eventually
from taskgate.admission.callers import Callers
from taskgate.auth.claims import IssuerSettings
from taskgate.auth.context import ANONYMOUS, AuthContext
from taskgate.auth.fetch import FetchFailed, HttpFetcher
from taskgate.auth.jwks import IssuerKeys
from taskgate.cluster.message_auth import SealKeys
from taskgate.domain.cursors import CursorKeys
from taskgate.domain.listing import Position
from taskgate.domain.request_state import PassThroughState, RequestStateKeys
from taskgate.wiring.authentication import (
    Authenticator,
    Issuer,
    ReloadableAuthenticator,
    opened,
)
from unit.admission.test_callers import MOUNT
from unit.lifecycle.asked import Asked

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class SlowCallers:
    """Judges when it is told to."""

    def __init__(self) -> None:
        self.come, self.go = asyncio.Event(), asyncio.Event()

    async def identify(self, exchange: Any, mount: Any) -> AuthContext:
        self.come.set()
        await self.go.wait()
        return ANONYMOUS


class Keys:
    """Keys that are there when a test says so."""

    def __init__(self) -> None:
        self.has_keys = False
        self.told: list[str] = []

    def start(self) -> None:
        self.told.append("start")

    async def close(self) -> None:
        self.told.append("close")


def issuer(keys: Keys) -> Issuer:
    return Issuer(
        IssuerSettings(name="corp", issuer="https://idp.example.com/"), cast("IssuerKeys", keys), HttpFetcher()
    )


def authenticator(callers: Any, key: bytes = b"a", keys: Keys | None = None) -> Authenticator:
    return Authenticator(
        callers=cast("Callers", callers),
        cursors=CursorKeys(key * 32),
        states=RequestStateKeys(key * 32),
        messages=SealKeys(key * 32),
        checkpoints=SealKeys(key * 32),
        issuers=() if keys is None else (issuer(keys),),
    )


BEFORE = authenticator(SlowCallers)


async def test_a_request_is_judged_by_the_gatehouse_that_it_came_to_which_ends_after_that() -> None:
    slow, keys, quick = SlowCallers(), Keys(), SlowCallers()
    quick.go.set()
    gate = ReloadableAuthenticator(authenticator(slow, keys=keys))
    judged = asyncio.ensure_future(gate.identify(Asked(), MOUNT))
    async with bounded():
        await slow.come.wait()
        gate.switch(authenticator(quick))
        assert await gate.identify(Asked(), MOUNT) is ANONYMOUS
        for _ in range(5):
            await asyncio.sleep(0)
        assert (judged.done(), keys.told) == (False, [])
        slow.go.set()
        assert await judged is ANONYMOUS
    await eventually(lambda: keys.told == ["close"])
    await gate.close()


async def test_one_that_nobody_came_to_ends_at_once() -> None:
    keys = Keys()
    gate = ReloadableAuthenticator(authenticator(SlowCallers(), keys=keys))
    gate.switch(authenticator(SlowCallers()))
    await eventually(lambda: keys.told == ["close"])
    await gate.close()


async def test_at_the_end_all_of_them_end_whoever_waits() -> None:
    slow, all_keys = SlowCallers(), (Keys(), Keys())
    gate = ReloadableAuthenticator(authenticator(slow, keys=all_keys[0]))
    judged = asyncio.ensure_future(gate.identify(Asked(), MOUNT))
    async with bounded():
        await slow.come.wait()
        gate.switch(authenticator(SlowCallers(), keys=all_keys[1]))
        await gate.close()
        assert [keys.told for keys in all_keys] == [["close"], ["close"]]
        judged.cancel()
        await asyncio.wait((judged,))


async def test_one_that_is_ending_when_all_do_ends_wholly() -> None:
    """Its issuers' connections too, which come after their keys."""

    class SlowKeys(Keys):
        ends = asyncio.Event()

        async def close(self) -> None:
            await super().close()
            await self.ends.wait()

    keys = SlowKeys()
    before = authenticator(SlowCallers(), keys=keys)
    fetched = before.issuers[0].fetch
    with pytest.raises(FetchFailed):
        await fetched.get("http://127.0.0.1:9/", timeout=timedelta(seconds=1), max_size=1)
    gate = ReloadableAuthenticator(before)
    gate.switch(authenticator(SlowCallers()))
    await eventually(lambda: keys.told == ["close"])
    keys.ends.set()
    async with bounded():
        await gate.close()
    assert not [each for each in gc.get_objects() if isinstance(each, aiohttp.ClientSession) and not each.closed]


async def test_what_is_sealed_is_sealed_with_the_keys_of_now() -> None:
    gate = ReloadableAuthenticator(authenticator(SlowCallers()))
    cursors, states, place = gate.cursors, gate.states, Position(NOW, "task")
    before, after = (authenticator(None, key) for key in (b"a", b"b"))
    for house in (before, after):
        cursor = cursors.seal(place, context="c", mount="m")
        assert cursor == house.cursors.seal(place, context="c", mount="m")
        assert cursors.open(cursor, context="c", mount="m") == place
        assert gate.messages.verified(house.messages.sign(b"text")) == b"text"
        assert gate.checkpoints.verified(house.checkpoints.sign(b"text")) == b"text"
        sealed = states.seal(PassThroughState("s"), context="c", mount="m", digest="d", until=NOW.replace(year=2027))
        assert house.states.open(sealed, contexts=["c"], mount="m", digest="d", now=NOW) == PassThroughState("s")
        assert states.open(sealed, contexts=["c"], mount="m", digest="d", now=NOW) == PassThroughState("s")
        gate.switch(after)
    await gate.close()


async def test_a_gatehouse_is_waited_for_until_it_has_its_keys() -> None:
    keys = Keys()
    house = authenticator(SlowCallers(), keys=keys)
    opening = asyncio.ensure_future(opened(house, BEFORE))
    await eventually(lambda: keys.told == ["start"])
    house.heard.set()
    await asyncio.sleep(0)
    assert not opening.done(), "there was news, but no keys"
    keys.has_keys = True
    house.heard.set()
    async with bounded():
        await opening


async def test_an_issuer_that_is_away_is_not_waited_for_for_ever() -> None:
    async with bounded():
        await opened(authenticator(SlowCallers(), keys=Keys()), BEFORE, within=datetime.resolution)


async def test_keys_that_both_have_are_neither_begun_nor_ended_with_the_change() -> None:
    keys, gone, new = Keys(), Keys(), Keys()
    first, second = (
        replace(authenticator(SlowCallers()), issuers=tuple(issuer(each) for each in both))
        for both in ((keys, gone), (keys, new))
    )
    gate = ReloadableAuthenticator(first)
    gate.open()
    keys.has_keys = new.has_keys = True
    async with bounded():
        await opened(second, first)
    gate.switch(second)
    await eventually(lambda: gone.told == ["start", "close"])
    assert (keys.told, new.told) == (["start"], ["start"])
    await gate.close()
    assert (keys.told, new.told) == (["start", "close"], ["start", "close"])


async def test_a_gate_that_was_ready_stays_so_with_an_issuer_that_is_new_and_away() -> None:
    gate = ReloadableAuthenticator(authenticator(SlowCallers(), keys=(keys := Keys())))
    assert not gate.ready
    keys.has_keys = True
    assert gate.ready
    gate.switch(authenticator(SlowCallers(), keys=Keys()))
    assert gate.ready
    await gate.close()
