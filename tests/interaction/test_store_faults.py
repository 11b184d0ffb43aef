"""A store that takes nothing more says so: in /readyz, in a metric and once in the log; and works again by itself.

Nothing is lost meanwhile: results wait in memory, and are written when that is possible again.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.failing_store import FailingStore
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, StoreFault, open_store, serve
from helpers.host.host import Host
from helpers.loop_pace import LoopClock
from helpers.server import Hold, ScriptedServer
from helpers.small_disk import small_disk
from helpers.waiting import bounded

DONE = {"content": [{"type": "text", "text": "done " * 10_000}]}
LARGE = {"text": "x" * 60_000}
FAULTS = "The task store does not work and no task can be created: %s"
OVER = "The task store works again"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the store has logged."""
    return [record.getMessage() for record in caplog.records if record.name == "taskgate.stores"]


async def faulty(gateway: Gateway, fault: StoreFault) -> None:
    """Expect that operators see that fault, and no other."""
    assert await gateway.ready() == 503
    for each in StoreFault:
        assert await gateway.count("taskgate_store_fault", fault=each) == (each is fault)
    assert await gateway.count("taskgate_store_up") == 0


async def well(gateway: Gateway) -> None:
    """Wait until operators see none."""
    async with bounded():
        while await gateway.ready() != 200:
            await asyncio.sleep(0.01)
    assert await gateway.count("taskgate_store_fault") == 0
    assert await gateway.count("taskgate_store_up") == 1


async def start_until_refused(host: Host) -> int:
    """Make tasks until one is refused; how many were made."""
    for made in range(200):
        answer = await host.call("echo", LARGE, task={"ttl": 1000})
        if answer.message is not None and "error" in answer.message:
            assert (answer.code, answer.error["data"]["reason"]) == (503, "store")
            return made
    raise AssertionError("no task was refused")


async def test_a_full_disk_is_told_and_what_ended_meanwhile_is_written_when_there_is_room(
    server: ScriptedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hold = server.script["report"] = Hold()
    with small_disk(tmp_path / "disk") as disk:
        config = configuration({"reports": server.url}, folder=disk.folder, audit={"enabled": False})
        async with bounded(), serve(config) as gateway:
            host = await gateway.greeted()
            task = await host.start("report")
            await hold.begun.wait()
            disk.fill()
            await start_until_refused(host)
            await faulty(gateway, StoreFault.DISK_FULL)
            assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
            hold.release(DONE)
            # It ended at its server; the store, which hosts read, does not have that.
            assert (await host.task(task["taskId"]))["status"] == "working"
            await start_until_refused(host)
            disk.clear()
            await well(gateway)
            answer = await host.ask("tasks/result", {"taskId": task["taskId"]})
            assert answer.result["content"] == DONE["content"]
            await host.start("echo")
    assert told(caplog) == [FAULTS % "the disk is full; free some space", OVER]
    assert [call["params"]["name"] for call in server.heard("tools/call")].count("report") == 1


async def test_a_file_at_its_largest_size_is_told_and_takes_tasks_again_when_others_expired(
    server: ScriptedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = configuration(
        {"reports": server.url},
        store={
            "backend": "sqlite",
            "sqlite": {"path": str(tmp_path / "taskgate.db"), "max_size": "1MiB"},
            "purge_interval": "50ms",
        },
        tasks={"ttl": {"min": "1s", "default": "3s", "keep": "1s"}},
        audit={"enabled": False},
    )
    async with bounded(), serve(config) as gateway:
        host = await gateway.greeted()
        assert await start_until_refused(host) > 2
        await faulty(gateway, StoreFault.SIZE_LIMIT)
        await well(gateway)
        await host.start("echo", LARGE)
    assert told(caplog)[0].startswith(FAULTS % "its file has reached store.sqlite.max_size")
    assert told(caplog)[-1] == OVER


@pytest.fixture
async def store() -> FailingStore:
    """A store in memory that works until it is told not to."""
    return FailingStore(await open_store("memory", None))


@pytest.fixture
async def gateway(server: ScriptedServer, store: FailingStore) -> AsyncIterator[Gateway]:
    """A gateway over that store, by the clock of its loop: a store is well once nothing has failed for a while."""
    around = Environment(store=store, clock=LoopClock())  # type: ignore[arg-type]
    async with serve(configuration({"reports": server.url}), around) as gateway:
        yield gateway
        store.failing = set()


@pytest.mark.parametrize("fault", StoreFault)
async def test_each_fault_is_told_once_and_until_a_check_finds_it_over(
    gateway: Gateway, store: FailingStore, fault: StoreFault, caplog: pytest.LogCaptureFixture
) -> None:
    host = await gateway.greeted()
    store.fault, store.failing = fault, {"insert", "check"}
    for _ in range(3):
        assert (await host.call("echo", task={})).code == 503
    await faulty(gateway, fault)
    (line,) = told(caplog)
    assert line.startswith(FAULTS % "")
    store.failing = {"insert"}
    await well(gateway)
    assert told(caplog) == [line, OVER]


async def test_a_refusal_without_a_fault_is_no_fault_of_the_store(
    gateway: Gateway, store: FailingStore, caplog: pytest.LogCaptureFixture
) -> None:
    host = await gateway.greeted()
    store.failing = {"insert"}
    assert (await host.call("echo", task={})).code == 503
    assert await gateway.ready() == 200
    assert told(caplog) == []
