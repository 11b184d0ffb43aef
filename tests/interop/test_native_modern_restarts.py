"""Tasks that a real server of 2026-07-28 runs as its own go on when the gateway is there again, however it ended."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from signal import SIGTERM
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from helpers.gateway.process import GatewayProcess
from helpers.host.host import Host
from helpers.waiting import bounded
from interop.hosts import OFFICIAL, Place, place_for
from interop.native import Native
from interop.native_modern import native_modern_server
from requirements import covers

# The server is started once, and its output is read by the loop that started it.
pytestmark = [*OFFICIAL, pytest.mark.asyncio(loop_scope="module")]

CAPABLE = {"elicitation": {"form": {}}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def native(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Native]:
    """The server, which outlives the gateway."""
    async with native_modern_server(tmp_path_factory.mktemp("native")) as server:
        yield server


def place_before(native: Native, folder: Path) -> Place:
    """A gateway's place that finds out the server's era and makes a task of every call that it may."""
    place = place_for(native.url, folder)
    # What is left at the server need not be waited for.
    written = place.file.read_text().replace("timeout: 5s", "timeout: 1s")
    tasks = 'tasks: {upgrade: [{tool: "*", mode: always}], early_poll: {reject_above: 1000}, '
    place.file.write_text(written.replace("tasks: {", tasks))
    return place


async def end(gateway: GatewayProcess, how: str) -> None:
    """Ends it, and waits until it has ended."""
    if how == "killed":
        gateway.kill()
    else:
        gateway.ask(SIGTERM)
    await gateway.exit_status()


async def found(host: Any, task: str) -> dict[str, Any]:
    """The task, by either kind of host."""
    return await host.task(task)  # type: ignore[no-any-return]


async def said(host: Any, task: str, words: str) -> None:
    """Returns once a task says that of itself."""
    async with bounded():
        while (await found(host, task)).get("statusMessage") != words:
            await asyncio.sleep(0.02)


async def ended(host: Any, task: str) -> dict[str, Any]:
    """The task once it has ended."""
    async with bounded():
        while (last := await found(host, task))["status"] in ("working", "input_required"):
            await asyncio.sleep(0.05)
    return last


@pytest.mark.parametrize("how", ["killed", "asked to"])
@covers("R-RES-8", "M-UPD-4")
async def test_tasks_go_on_when_the_gateway_is_there_again(native: Native, tmp_path: Path, how: str) -> None:
    place, names = place_before(native, tmp_path), (f"old {how}", f"new {how}")
    asked_before = native.did("asked")
    async with aiohttp.ClientSession() as http:
        old, new = Host(http, place.url), Host(http, place.url, capabilities=CAPABLE, era="modern")
        async with place.gateway() as gateway:
            await old.initialize()
            one = (await old.start("waits", {"name": names[0]}))["taskId"]
            other = (await new.start("waits", {"name": names[1]}))["taskId"]
            asking = (await new.start("ask"))["taskId"]
            await said(old, one, f"waiting for {names[0]}")
            await said(new, other, f"waiting for {names[1]}")
            async with bounded():
                while len(before := (await new.until(asking, "input_required"))["inputRequests"]) < 2:
                    await asyncio.sleep(0.02)
            await end(gateway, how)
        for name in names:
            (native.ledger.parent / name).touch()
        async with place.gateway():
            assert (await ended(old, one))["status"] == "completed"
            assert (await ended(new, other))["result"]["content"][0]["text"] == f"waited for {names[1]}"
            again = (await new.until(asking, "input_required"))["inputRequests"]
            assert again == before
            await new.update(asking, {key: _answer(each) for key, each in again.items()})
            async with bounded():
                while again.keys() & (third := (await new.until(asking, "input_required"))["inputRequests"]).keys():
                    await asyncio.sleep(0.02)
            await new.update(asking, {key: _answer(each) for key, each in third.items()})
            assert (await ended(new, asking))["result"]["content"][0]["text"] == "w-first w-second w-third"
    for name in names:
        assert [native.did(f"{what} {name}") for what in ("began", "stopped", "ended")] == [1, 0, 1]
    # Once to begin with, and once for the answers to either round.
    assert native.did("asked") - asked_before == 3


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    (field,) = question["params"]["requestedSchema"]["properties"]
    return {"action": "accept", "content": {field: f"w-{field}"}}
