"""Programs that come and go a hundred times under one gateway, however they end: nothing of them is left, or grows."""

import asyncio
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway, serve
from helpers.left_behind import can_be_found, left_behind, marked
from helpers.package_objects import counted, grown
from helpers.server import AWKWARD_PROGRAM
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import eventually
from requirements import covers

CALLERS = 5
TOOLS = ("echo", "answers_and_exits", "killed", "echo", "exits")
"""What the callers call: two programs are stopped for being idle, and the others end by themselves."""
ROUNDS = 20
_PROC = Path("/proc")


def descriptors() -> int:
    return len(list((_PROC / "self/fd").iterdir()))


def zombies() -> list[str]:
    """The processes that have ended and that nobody waited for: of this process and of its children."""
    stats = [_stat(place) for place in _PROC.glob("[0-9]*/stat")]
    ours = {str(os.getpid())}
    ours |= {pid for pid, _, parent in stats if parent in ours}
    return [pid for pid, state, parent in stats if state == "Z" and parent in ours]


def _stat(place: Path) -> tuple[str, str, str]:
    try:
        state, parent = place.read_text(errors="replace").rpartition(")")[2].split()[:2]
    except OSError:
        return "", "", ""
    return place.parent.name, state, parent


@pytest.mark.skipif(not can_be_found(), reason="this system does not tell of processes")
@covers("U-STDIO-2")
async def test_a_hundred_programs_leave_nothing_behind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    issuer = TokenIssuer(tmp_path)
    program = {
        "path": "/reports/mcp",
        "transport": "stdio",
        "command": [sys.executable, "-IS", AWKWARD_PROGRAM],
        "env": marked(tmp_path),
        "pool": {"idle_timeout": "1ms"},
        "restart": {"backoff": "1ms", "max_backoff": "1ms"},
    }
    async with serve(guarded({}, issuer, upstreams={"reports": program})) as gateway:
        tokens = [issuer.token(gateway.url(), subject=f"caller-{number}") for number in range(CALLERS)]

        def count(said: str) -> int:
            return caplog.messages.count(f"a server's program {said}")

        async def all_come_and_go() -> None:
            pairs = zip(tokens, TOOLS, strict=True)
            await asyncio.gather(*(comes_and_goes(gateway, token, tool) for token, tool in pairs))
            await eventually(lambda: count("ended") == count("was started"))

        for _ in range(2):
            await all_come_and_go()
        before: dict[Callable[[], Any], Any] = {each: each() for each in (descriptors, tasks)}
        gc.collect()
        objects = counted()
        for _ in range(ROUNDS - 2):
            await all_come_and_go()
        assert count("was started") >= CALLERS * ROUNDS
        for look, found in before.items():
            await eventually(lambda: look() <= found)  # noqa: B023  at once
        # What hosts said of themselves whose sessions have ended is remembered a while.
        gc.collect()
        assert grown(objects, ROUNDS - 2, remembered={"Peer"}) == {}
        assert left_behind(tmp_path) == []
        assert zombies() == []


def tasks() -> int:
    return len(asyncio.all_tasks())


async def comes_and_goes(gateway: Gateway, token: str, tool: str) -> None:
    """One session of a host, with one call."""
    host = await gateway.greeted(token=token)
    answer = await host.call(tool)
    assert ("result" in (answer.message or {})) is (tool in {"echo", "answers_and_exits"})
    assert await host.leave() == 200
