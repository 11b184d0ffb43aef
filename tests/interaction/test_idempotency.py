"""A call with an idempotency key that becomes a task is one task, however often it is sent."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from helpers.failing_store import HoldingStore
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, open_store, serve
from helpers.host.host import ERAS, both_eras
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.idempotency import KEY, YEAR, call_with_key, calls, start_with_key, upgrade
from interaction.questions import DONE

ANOTHER = "The idempotency key was used for another call"


@pytest.fixture
async def hold(server: ScriptedServer) -> Hold:
    """What the tool `report` waits for."""
    server.script["report"] = hold = Hold()
    return hold


@pytest.fixture
async def gateway(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway that makes a task of every call whose host can have one."""
    async with serve(configuration({"reports": server.url}, tasks=upgrade())) as gateway:
        yield gateway


# --- the key of a task -----------------------------------------------------------------------------------------------


@both_eras
async def test_the_same_key_gives_the_same_task_and_the_server_one_call(
    server: ScriptedServer, gateway: Gateway, hold: Hold, era: str
) -> None:
    host = await gateway.greeted(era=era)
    first = await start_with_key(host)
    assert await start_with_key(host) == first
    async with bounded():
        await hold.begun.wait()
    assert await start_with_key(await gateway.greeted(era=era)) == first
    assert len(calls(server)) == 1
    assert await gateway.count("taskgate_tasks_started_total") == 1
    assert await gateway.count("taskgate_calls_joined_total", upstream="reports", how="key") == 2


async def test_a_host_of_the_other_era_gets_the_same_task_too(
    server: ScriptedServer, gateway: Gateway, hold: Hold
) -> None:
    one, other = [await gateway.greeted(era=era) for era in ERAS]
    assert await start_with_key(one) == await start_with_key(other)


@both_eras
async def test_many_at_once_with_one_key_are_one_task_and_one_call(
    server: ScriptedServer, gateway: Gateway, hold: Hold, era: str
) -> None:
    hosts = [await gateway.greeted(era=era) for _ in range(8)]
    async with bounded():
        tasks = await asyncio.gather(*(start_with_key(host) for host in hosts))
        await hold.begun.wait()
    assert len(set(tasks)) == 1
    assert len(calls(server)) == 1


@both_eras
async def test_the_key_never_reaches_the_server_and_all_else_does(
    server: ScriptedServer, gateway: Gateway, hold: Hold, era: str
) -> None:
    host = await gateway.greeted(era=era)
    await start_with_key(host)
    async with bounded():
        await hold.begun.wait()
    (sent,) = calls(server)
    assert (sent["name"], sent["arguments"], sent["_meta"]["x"]) == ("report", YEAR, 1)
    assert KEY not in sent["_meta"]


@both_eras
async def test_nor_does_it_with_a_plain_call(server: ScriptedServer, gateway: Gateway, era: str) -> None:
    if era == "modern":
        await gateway.modern(tasks=False).call("echo", meta={KEY: "k", "x": 1})
    else:
        await (await gateway.greeted()).call("echo", _meta={KEY: "k", "x": 1, "progressToken": 7})
    (sent,) = calls(server)
    assert sent["_meta"]["x"] == 1
    assert KEY not in sent["_meta"]


@both_eras
async def test_after_its_end_the_task_is_still_the_one_of_its_key(
    server: ScriptedServer, gateway: Gateway, hold: Hold, era: str
) -> None:
    host = await gateway.greeted(era=era)
    first = await start_with_key(host)
    hold.release(DONE)
    await host.until(first, "completed")
    assert await start_with_key(host) == first
    assert len(calls(server)) == 1


@both_eras
async def test_once_the_task_has_expired_its_key_makes_a_new_one(server: ScriptedServer, hold: Hold, era: str) -> None:
    clock = ManualClock()
    ttl = {"ttl": {"default": "1m", "max": "1m"}}
    config = configuration({"reports": server.url}, tasks=upgrade() | ttl)
    async with serve(config, Environment(clock=clock)) as gateway:
        host = await gateway.greeted(era=era)
        first = await start_with_key(host)
        clock.advance(timedelta(seconds=59))
        assert await start_with_key(host) == first
        clock.advance(timedelta(seconds=1))
        assert await start_with_key(host, arguments={"year": 2027}) != first


@both_eras
@pytest.mark.parametrize("other", [{"arguments": {"year": 2027}}, {"arguments": {"year": 2026.0}}, {"tool": "echo"}])
async def test_the_key_of_another_call_is_refused(
    server: ScriptedServer, gateway: Gateway, hold: Hold, era: str, other: dict[str, Any]
) -> None:
    host = await gateway.greeted(era=era)
    first = await start_with_key(host)
    answer = await call_with_key(host, **other)
    assert (answer.code, answer.error["message"]) == (-32602, ANOTHER)
    assert await start_with_key(host) == first
    async with bounded():
        await hold.begun.wait()
    assert len(calls(server)) == 1


@both_eras
async def test_the_order_of_the_arguments_makes_no_difference(
    server: ScriptedServer, gateway: Gateway, hold: Hold, era: str
) -> None:
    host = await gateway.greeted(era=era)
    assert await start_with_key(host, arguments={"a": 1, "b": {"c": 2, "d": 3}}) == await start_with_key(
        host, arguments={"b": {"d": 3, "c": 2}, "a": 1}
    )


@both_eras
async def test_other_keys_and_none_are_other_tasks(
    server: ScriptedServer, gateway: Gateway, hold: Hold, era: str
) -> None:
    host = await gateway.greeted(era=era)
    assert len({await start_with_key(host, key) for key in ("k", "l", None, None)}) == 4


@both_eras
@pytest.mark.parametrize("key", ["", "x" * 257, 7, {"k": 1}])
async def test_what_can_be_no_key_is_refused(server: ScriptedServer, gateway: Gateway, era: str, key: Any) -> None:
    if era == "modern":
        answer = await gateway.modern().call("report", meta={KEY: key})
    else:
        answer = await (await gateway.greeted()).call("report", task={}, _meta={KEY: key})
    assert (answer.code, answer.error["message"]) == (-32602, f"{KEY} must be a string of 1 to 256 characters")
    assert calls(server) == []


@both_eras
async def test_another_context_has_keys_of_its_own(
    server: ScriptedServer, issuer: TokenIssuer, hold: Hold, era: str
) -> None:
    async with serve(guarded({"reports": server.url}, issuer, tasks=upgrade())) as gateway:
        tokens = [issuer.token(gateway.url(), subject=subject) for subject in ("alice", "bob", "alice")]
        hosts = [await gateway.greeted(era=era, token=token) for token in tokens]
        alice, bob, again = [await start_with_key(host) for host in hosts]
        # Nor is anybody told that somebody else used the key, for whatever.
        assert await start_with_key(hosts[1], "bobs") != (await start_with_key(hosts[0], "bobs", {"year": 1}))
    assert alice == again != bob


@both_eras
async def test_another_mount_has_keys_of_its_own(server: ScriptedServer, hold: Hold, era: str) -> None:
    config = configuration({"reports": server.url, "books": server.url}, tasks=upgrade())
    async with serve(config) as gateway:
        one, other = [await gateway.greeted(era=era, mount=mount) for mount in ("reports", "books")]
        assert await start_with_key(one) != await start_with_key(other)


@both_eras
async def test_after_a_restart_the_key_gives_the_same_task(server: ScriptedServer, tmp_path: Path, era: str) -> None:
    config = configuration({"reports": server.url}, folder=tmp_path, tasks=upgrade())
    async with serve(config) as gateway:
        host = await gateway.greeted(era=era)
        first = await start_with_key(host)
        await host.until(first, "completed")
    async with serve(config) as gateway:
        host = await gateway.greeted(era=era)
        assert await start_with_key(host) == first
        assert (await call_with_key(host, arguments={"year": 1})).error["message"] == ANOTHER
    assert len(calls(server)) == 1


async def test_a_call_with_a_key_is_a_task_at_once_that_would_be_one_only_if_it_took_long(
    server: ScriptedServer, hold: Hold
) -> None:
    tasks = {**upgrade("auto"), "inline_grace": "1h"}
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        host = await gateway.greeted(era="modern")
        assert await start_with_key(host) == await start_with_key(host)
    assert len(calls(server)) == 1


async def test_a_host_that_leaves_without_its_handle_finds_the_task_by_its_key(
    server: ScriptedServer, hold: Hold
) -> None:
    store = HoldingStore(await open_store("memory", None))
    config = configuration({"reports": server.url}, tasks=upgrade())
    async with serve(config, Environment(store=store)) as gateway:  # type: ignore[arg-type]
        host = gateway.modern()
        with store.holding("insert") as inserting:
            params = {"name": "report", "arguments": YEAR}
            async with host.asking("tools/call", params, meta={KEY: "k"}) as asked, bounded():
                await inserting.wait()
                await asked.leave()
        task = (await host.start("report", YEAR, meta={KEY: "k"}))["taskId"]
        async with bounded():
            await hold.begun.wait()
        assert (await host.task(task))["status"] == "working"
        assert len(calls(server)) == 1
        hold.release(DONE)
        await host.until(task, "completed")
