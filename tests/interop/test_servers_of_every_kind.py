"""Released servers that are programs, or speak HTTP+SSE, do behind the gateway what they do without it.

One gateway has all of them, each at a mount of its own. A host is one process, which does everything at all of them at
once; what it has told is asked for by one test for each server. What a host does with a server over Streamable HTTP is
in test_matrix.py, but for the servers and the release that are not there.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from helpers.left_behind import can_be_found, left_behind
from interop.columns import told_by
from interop.matrix import COLUMNS, expected
from interop.peers import require_peers
from interop.programs import ENVIRONMENTS, upstreams
from interop.released import ERAS, ON_SDKS, RELEASED, SHELF, STDIO, TABLE, Released

# One gateway for all: its output is read by the loop that started it.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

WITHIN = 240.0
"""Seconds for a host: programs are started meanwhile, a few for each server."""

Said = dict[tuple[str, str, str], dict[str, Any]]


def mount_of(host: str, server: str, transport: str) -> str:
    """The mount that a host uses.

    All hosts are one caller here. Those that declare the same share a program, and what that asks while it runs calls
    of several is asked of nobody: a program of the table, which asks, has a mount for each host.
    """
    asks = transport == STDIO and any(each.name == server for each in ON_SDKS)
    return f"{host}-{server}-{transport}" if asks else f"{server}-{transport}"


def mounts() -> dict[str, tuple[str, str]]:
    """All of them."""
    table = {mount_of(host, server, transport): (server, transport) for host, server, transport in TABLE}
    return table | {mount_of(host, each.name, transport): (each.name, transport) for host, each, transport in SHELF}


def configured(written: dict[str, Any], folder: Path) -> Path:
    """A file with these upstreams. The call of each server that people have becomes a task, however fast it is."""
    always = [
        {"upstream": f"{each.name}-{transport}", "tool": each.call.tool, "mode": "always"}
        for each in RELEASED
        for transport in each.transports
    ]
    tasks = {
        "upgrade": [*always, {"tool": "*", "mode": "auto"}],
        "poll_interval": {"base": "100ms", "min": "100ms", "adaptive": False},
        "inline_grace": "500ms",
    }
    return write_configuration(
        folder,
        "",
        upstreams=written,
        tasks=tasks,
        limits={"rate": [], "concurrency": {"tasks_per_context": 200, "sessions_per_context": 500}},
        logging={"level": "debug"},
    )


async def all_told_by(host: str, address: str) -> Said:
    """What one host says of every server that it is before."""

    def url(server: str, transport: str) -> str:
        return f"http://{address}/{mount_of(host, server, transport)}/mcp"

    asked = {each: url(*each[1:]) for each in TABLE if each[0] == host}
    for each, released, transport in SHELF:
        if each == host:
            call = {"tool": released.call.tool, "given": released.call.given}
            asked[host, released.name, transport] = json.dumps({"url": url(released.name, transport), **call})
    return dict(zip(asked, await told_by(host, [*asked.values()], within=WITHIN), strict=True))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def said(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Said]:
    """What every host says of every server and transport, by their names."""
    require_peers(*ENVIRONMENTS, "fastmcp-4.1.4")
    folder = tmp_path_factory.mktemp("every-kind")
    log = folder / "gateway.log"
    async with (
        upstreams(mounts(), folder) as written,
        gateway_process(["--config", configured(written, folder)], log=log) as gateway,
    ):
        told: Said = {}
        # One era after the other: hosts do not wait long for a server that is being started.
        for era in ERAS:
            for rows in await asyncio.gather(*(all_told_by(host, gateway.listen) for host in era)):
                told |= rows
        yield told
        assert left_behind(folder) or not can_be_found(), "this looks for them where they are not"
    assert left_behind(folder) == []


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("host", "server", "transport"), TABLE)
async def test_a_host_does_with_a_server_over_that_what_it_does_over_streamable_http(
    said: Said, host: str, server: str, transport: str
) -> None:
    assert said[host, server, transport] == {column: expected(host, server, column, transport) for column in COLUMNS}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("host", "server", "transport"), SHELF, ids=[f"{host}-{each.name}-{over}" for host, each, over in SHELF]
)
async def test_every_tool_is_listed_and_one_is_called_as_a_task(
    said: Said, host: str, server: Released, transport: str
) -> None:
    told = said[host, server.name, transport]
    assert "failed" not in told, told
    assert server.tools <= {*told["tools"]} <= server.tools | server.for_some
    text, is_error = told["told"]
    assert (server.call.told in text, is_error) == (True, server.call.is_error), text
