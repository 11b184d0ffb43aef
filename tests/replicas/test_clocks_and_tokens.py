"""Of gateways whose clocks are wrong each judges tokens by its own, and whatever is asked with one by the same."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from helpers.gateway.replicas import serve_replicas
from helpers.server import Hold, ScriptedServer
from helpers.shared_store import SharedServer
from helpers.token_issuer import TokenIssuer
from helpers.waiting import bounded
from helpers.wandering_clock import WanderingClock
from interaction.questions import DONE
from replicas.conftest import AT_ONCE
from replicas.wrong_clocks import Pair, clocks, hours
from taskgate.admission.lookups import PAGE

__all__ = ["clocks", "hours"]

AUDIENCE = "https://m.example/reports/mcp"


@pytest.fixture
def issuer(tmp_path: Path) -> TokenIssuer:
    return TokenIssuer(tmp_path)


@pytest.fixture
async def guarded(
    server: ScriptedServer,
    valkey_server: SharedServer,
    issuer: TokenIssuer,
    tmp_path: Path,
    clocks: list[WanderingClock],
    hours: tuple[int, int],
) -> AsyncIterator[Pair]:
    """Two gateways that ask for tokens, and are exact about their ends."""
    corp = {**issuer.section, "leeway": "0s"}
    sections = {"auth": {"mode": "required", "issuers": {"corp": corp}}, "server": {"public_url": "https://m.example"}}
    options, servers = valkey_server.options(), {"reports": server.url}
    async with serve_replicas(2, servers, options, tmp_path, clocks=clocks, tasks=AT_ONCE, **sections) as gateways:
        yield Pair(gateways, clocks, jump=not any(hours))


def lasting(issuer: TokenIssuer) -> str:
    """A token that is good by all these clocks."""
    now = int(time.time())
    return issuer.token(AUDIENCE, iat=now - 3 * 3600, exp=now + 3 * 3600)


async def test_tasks_are_listed_in_the_order_they_were_made_wherever_that_was(
    guarded: Pair, issuer: TokenIssuer
) -> None:
    """And the cursor of one leads on at the other."""
    host = await guarded.one.greeted(token=lasting(issuer))
    both, made = [host, guarded.other.again(host)], []
    for number in range(PAGE + 4):
        task = (await both[number % 2].start("echo"))["taskId"]
        await both[number % 2].ask("tasks/result", {"taskId": task})
        made.append(task)
        if number == 2:
            guarded.later()
    listed: list[str] = []
    params: dict[str, str] = {}
    for number in range(2):
        page = (await both[number % 2].ask("tasks/list", params)).result
        listed += [task["taskId"] for task in page["tasks"]]
        params = {"cursor": page.get("nextCursor", "")}
    assert listed == made[::-1]


@pytest.mark.parametrize("hours", [(1, -1)], indirect=True, ids=["ahead, behind"])
async def test_a_token_is_good_until_its_end_by_the_clock_of_whoever_is_asked_and_so_is_what_was_asked_with_it(
    server: ScriptedServer, guarded: Pair, issuer: TokenIssuer, clocks: list[WanderingClock]
) -> None:
    """Half an hour ago it was over: the first is long past that, and the other is not there yet."""
    server.script["report"] = hold = Hold()
    now = int(time.time())
    token = issuer.token(AUDIENCE, iat=now - 3 * 3600, exp=now - 1800)
    host = await guarded.other.greeted(token=token)
    assert (await guarded.one.again(host).ask("ping")).status == 401
    task = (await host.start("report"))["taskId"]
    listens = guarded.other.modern(token=token).listen(taskIds=[task])
    async with host.listen() as stream, listens as subscription:
        waiting = asyncio.create_task(host.ask("tasks/result", {"taskId": task}))
        hold.release(DONE)
        async with bounded():
            assert (await waiting).result["content"] == DONE["content"]
        await subscription.until("notifications/tasks")
        assert not stream.ended
        clocks[1].by = timedelta()
        assert (await host.ask("ping")).status == 401


@pytest.mark.parametrize("hours", [(1, -1)], indirect=True, ids=["ahead, behind"])
async def test_what_was_asked_with_a_token_ends_with_it_by_the_clock_of_whoever_was_asked(
    server: ScriptedServer, guarded: Pair, issuer: TokenIssuer
) -> None:
    """At the first it is over a second from now; at the other it is good for two hours more."""
    server.script["report"] = hold = Hold()
    now = time.time()
    token = issuer.token(AUDIENCE, iat=int(now) - 3 * 3600, exp=now + 3600 + 1.5)
    host = await guarded.one.greeted(token=token)
    task = (await host.start("report"))["taskId"]
    listens = guarded.one.modern(token=token).listen(taskIds=[task])
    async with host.listen() as stream, listens as subscription:
        there = asyncio.create_task(guarded.other.again(host).ask("tasks/result", {"taskId": task}))
        async with bounded():
            with pytest.raises(aiohttp.ClientPayloadError):
                await host.ask("tasks/result", {"taskId": task})
        await stream.end()
        await subscription.answer()
    hold.release(DONE)
    async with bounded():
        assert (await there).result["content"] == DONE["content"]
