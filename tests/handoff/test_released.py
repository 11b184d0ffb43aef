"""Released hosts without tasks get the results of calls of every length, whatever befalls the gateway.

All hosts make their calls at the same time, before one gateway for each event. `matrix.py` says what is to come of
each call; a long run notes what came of it for the page.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from handoff.gateways import replicas, single
from handoff.matrix import CEILINGS, EVENTS, HOSTS, MODES, RELEASED, RELEASED_SCALES, Cell, Event, cells
from handoff.released import Call, calls_of, instant_of, play
from handoff.server import Books, counting_server
from helpers.balancers import balanced
from helpers.ports import free_port
from helpers.shared_store import SharedServer
from interop.claude_code import require_program
from interop.peers import require_peers

LONG = os.environ.get("HANDOFF_MATRIX") == "long"
LEAD = 25.0 if LONG else 8.0
"""Seconds that all hosts have to start."""
DRAIN = 200.0 if LONG else 10.0
"""Seconds that a replica has to end its calls."""
PATIENCE = 900.0 if LONG else 100.0
MOMENT = 1.0
"""Seconds of a call that may be killed before the event id of its server was stored: some hosts call late."""
SHORT = 5
"""Seconds of a ceiling that a host may exceed by itself in a long run: a hundred connections share two cores."""
KEPT_OPEN = 500
ROOMY = ("tasks_per_context", "waits_per_context", "sessions_per_context")
"""Limits that all hosts share, which are one caller here."""

pytestmark = [
    pytest.mark.interop,
    pytest.mark.program,
    pytest.mark.alone,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(PATIENCE + 60),
]


@dataclass(frozen=True, slots=True)
class Played:
    """All calls, what each host shows of the server's own answer, and what the server has run."""

    calls: list[Call]
    direct: dict[str, Any]
    books: Books

    def entry(self, call: Call) -> str:
        """What came of a call."""
        runs = self.books.runs[call.number]
        if call.is_told and runs == 1:
            return "told"
        if not call.is_delivered(self.direct[call.host]):
            return "lost"
        return f"{call.turns}" if runs == 1 else f"{call.turns} twice" if runs == 2 else f"ran {runs} times"

    def is_right(self, call: Call) -> bool:
        """Whether that is what is to come of it."""
        if self.entry(call) == "told":
            return call.cell.event == "kill -9" and call.seconds <= MOMENT
        return self.entry(call) == f"{call.turns}" and call.turns <= call.cell.most_turns


def tried() -> list[Cell]:
    """All cells, or those that are soon over."""
    if LONG:
        return [*cells()]
    return [cell for cell in cells() if cell.ceiling == 5 and 2 < cell.duration <= 10]


def sections(url: str, event: Event) -> dict[str, str]:
    """What the gateways of an event have in their file: a mount of the server for each ceiling."""
    mounts = {
        f"c{ceiling}": {"path": f"/c{ceiling}/mcp", "url": url, "health": None, "concurrency": KEPT_OPEN}
        for ceiling in CEILINGS
    }
    rules = [
        {
            "upstream": f"c{ceiling}",
            "tool": "*",
            "mode": MODES[event],
            "handoff": {"after": "45s", "ceiling": f"{1000 * ceiling * RELEASED_SCALES[ceiling]:.0f}ms"},
        }
        for ceiling in CEILINGS
    ]
    return {
        "tasks": json.dumps({"upgrade": rules}),
        "limits": json.dumps({"rate": [], "concurrency": dict.fromkeys(ROOMY, 5000)}),
        "upstreams": json.dumps(mounts),
    }


def server_section(*hosts: str) -> str:
    """The section `server` of gateways that take these names for theirs."""
    drain = {"delay": "0s", "timeout": f"{DRAIN:g}s"}
    section = {"listen": "${LISTEN}", "allowed_hosts": hosts, "drain": drain, "max_streams_per_context": KEPT_OPEN}
    return json.dumps(section)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def played(tmp_path_factory: pytest.TempPathFactory, valkey_server: SharedServer) -> AsyncIterator[Played]:
    """All hosts make all calls, and what befalls the gateways befalls them."""
    require_peers("mcp-1.12.4", "mcp-2.3.0", "fastmcp-4.1.4")
    require_program()
    folders = {name: tmp_path_factory.mktemp(name.replace(" ", "")) for name in (*EVENTS, "hosts")}
    async with AsyncExitStack() as stack:
        url, books = await stack.enter_async_context(counting_server())
        # Some hosts are too old for a later revision.
        server, _ = await stack.enter_async_context(counting_server("2025-06-18"))
        calm = await stack.enter_async_context(
            single(folders["nothing"], url, **sections(url, "nothing"), server=server_section())
        )
        killed = await stack.enter_async_context(
            single(folders["kill -9"], url, **sections(url, "kill -9"), server=server_section())
        )
        folder, port = folders["rolling restart"], free_port()
        three = await stack.enter_async_context(
            replicas(
                folder,
                url,
                valkey_server,
                **sections(url, "rolling restart"),
                server=server_section(f"127.0.0.1:{port}"),
            )
        )
        balancer = await stack.enter_async_context(balanced("ours", [each.listen for each in three], folder, port))
        addresses: dict[Event, str] = {"nothing": calm.listen, "kill -9": killed.listen, "rolling restart": balancer}

        async def kill() -> None:
            await killed.kill()
            await killed.start()

        async def restart() -> None:
            for each in three:
                await each.restart()

        start, direct = time.time() + LEAD, dict[str, Any]()
        calls = [*calls_of(tried(), [*HOSTS], start)]

        async def use(host: str) -> None:
            own = [call for call in calls if call.host == host]
            direct[host] = await play(host, own, addresses, server, PATIENCE, folders["hosts"])

        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            for host in HOSTS:
                group.create_task(use(host))
            group.create_task(_at(instant_of("kill -9", tried(), start), kill))
            group.create_task(_at(instant_of("rolling restart", tried(), start), restart))
        result = Played(calls, direct, books)
        if LONG:
            _note(result)
        yield result


async def _at(moment: float, befall: Callable[[], Awaitable[None]]) -> None:
    await asyncio.sleep(moment - time.time())
    await befall()


def _note(played: Played) -> None:
    seen: dict[str, dict[str, dict[str, str]]] = {event: {host: {} for host in HOSTS} for event in EVENTS}
    for call in played.calls:
        seen[call.cell.event][call.host][call.cell.key] = played.entry(call)
    RELEASED.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("event", EVENTS)
async def test_a_released_host_gets_of_each_call_what_the_table_says(played: Played, event: Event, host: str) -> None:
    calls = [call for call in played.calls if (call.host, call.cell.event) == (host, event)]
    assert calls
    wrong = [call for call in calls if not played.is_right(call)]
    assert [f"{call}: {played.entry(call)}" for call in wrong] == []


@pytest.mark.parametrize("host", HOSTS)
async def test_a_released_host_reads_no_error_where_nothing_happens(played: Played, host: str) -> None:
    calls = [call for call in played.calls if (call.host, call.cell.event) == (host, "nothing")]
    assert [call for call in calls if call.errors and not (LONG and call.cell.ceiling <= SHORT)] == []
