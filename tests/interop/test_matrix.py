"""Every released host does with every released server, through one gateway, what the table in matrix.py says.

A host is one process, which does everything at all servers at once; several hosts run at once. What they have told is
asked for by one test for each pair.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from interop.columns import told_by
from interop.hosts import assert_log_is_discreet
from interop.matrix import COLUMNS, HOSTS, PAGE, SERVERS, SUMMARY_PAGE, expected, page, summary
from interop.peers import node_server, python_server, require_peers

# One gateway for all: its output is read by the loop that started it.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

RELEASES = ("1.8.1", "1.9.4", "1.12.4", "1.23.3", "2.3.0")
ENVIRONMENTS = ("fastmcp-3.4.10", "fastmcp-4.1.4", "fastmcp-4.2.3", "strands-agents-1.62.0")
AT_ONCE = 7
"""Hosts that run at the same time: with more of them the last would start late."""
EITHER = ("fastmcp-4-2", "fastmcp-4-2-legacy", "agent-framework-legacy")
"""Hosts of which what they do directly is compared, and the servers that it is compared with."""
DIRECTLY = ("1-12-4", "1-23-3", "2-3-0")
SKIPPING = "agent-framework-legacy"
"""A host that skips tools which are announced as tasks. It has them at mounts whose names end with QUIET."""
QUIET = "-quiet"
PINNED = "2-3-0-initialized"
INITIALIZED = "2025-11-25"
Said = dict[tuple[str, str], dict[str, str]]


async def servers(running: AsyncExitStack, folder: Path) -> dict[str, str]:
    """Every server's URL, by its name in the table."""
    urls = [
        await running.enter_async_context(python_server("matrix_server.py", release, folder)) for release in RELEASES
    ]
    names = [release.replace(".", "-") for release in RELEASES]
    typescript = await running.enter_async_context(node_server("matrix_server.mjs", folder))
    return {**dict(zip(names, urls, strict=True)), PINNED: urls[-1], "typescript": typescript}


def configured(urls: dict[str, str], folder: Path) -> Path:
    """A file with a mount for each server; where a call has not ended after half a second it becomes a task.

    Without authentication all hosts are one caller.
    """
    written = {
        name: {"path": f"/{name}/mcp", "url": url, **({"protocol_version": INITIALIZED} if name == PINNED else {})}
        for name, url in {**urls, **{f"{name}{QUIET}": urls[name] for name in DIRECTLY}}.items()
    }
    rule = {"tool": "*", "mode": "auto"}
    quiet = [{**rule, "upstream": f"{name}{QUIET}", "announce": "never"} for name in DIRECTLY]
    return write_configuration(
        folder,
        "",
        upstreams=written,
        tasks={
            "poll_interval": {"base": "100ms", "min": "100ms", "adaptive": False},
            "inline_grace": "500ms",
            "upgrade": [*quiet, rule],
        },
        limits={"rate": [], "concurrency": {"tasks_per_context": 200}},
        logging={"level": "debug"},
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def said(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Said]:
    """What every host says of every server, by their names."""
    require_peers(*(f"mcp-{release}" for release in RELEASES), *ENVIRONMENTS)
    folder = tmp_path_factory.mktemp("matrix")
    log = folder / "gateway.log"
    async with AsyncExitStack() as running:
        urls = await servers(running, folder)
        gateway = await running.enter_async_context(gateway_process(["--config", configured(urls, folder)], log=log))
        places = [f"http://{gateway.listen}/{server.name}/mcp" for server in SERVERS]
        turns = asyncio.Semaphore(AT_ONCE)

        async def rows_of(host: str, servers: Sequence[str], places: Sequence[str], name: str) -> Said:
            async with turns:
                rows = await told_by(host, places)
            return {(name, server): row for server, row in zip(servers, rows, strict=True)}

        through = [rows_of(each.name, [server.name for server in SERVERS], places, each.name) for each in HOSTS]
        direct = [rows_of(each, DIRECTLY, [urls[server] for server in DIRECTLY], f"{each} directly") for each in EITHER]
        quiet = [f"http://{gateway.listen}/{server}{QUIET}/mcp" for server in DIRECTLY]
        announced = [rows_of(SKIPPING, DIRECTLY, quiet, f"{SKIPPING}{QUIET}")]
        rows = await asyncio.gather(*through, *direct, *announced)
        yield {pair: row for told in rows for pair, row in told.items()}
    for url in urls.values():
        assert_log_is_discreet(log, url)
    assert [word for word in ("echo back", "slow train", "Once upon") if word in log.read_text()] == []


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("server", [each.name for each in SERVERS])
@pytest.mark.parametrize("host", [each.name for each in HOSTS])
async def test_a_host_does_with_a_server_what_the_table_says(said: Said, host: str, server: str) -> None:
    assert said[host, server] == {column: expected(host, server, column) for column in COLUMNS}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("server", DIRECTLY)
@pytest.mark.parametrize("host", [each for each in EITHER if each != SKIPPING])
async def test_the_newest_fastmcp_does_in_each_era_what_it_does_directly(said: Said, host: str, server: str) -> None:
    assert said[host, server] == said[f"{host} directly", server]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("server", DIRECTLY)
async def test_a_host_that_skips_tasks_does_what_it_does_directly_where_none_are_announced(
    said: Said, server: str
) -> None:
    assert said[f"{SKIPPING}{QUIET}", server] == said[f"{SKIPPING} directly", server]
    assert said[f"{SKIPPING}{QUIET}", server]["plain_call"] == "yes"


def test_the_page_is_what_the_table_makes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.interop.matrix writes it anew"


def test_the_page_of_hosts_has_the_table_in_short() -> None:
    assert summary() in SUMMARY_PAGE.read_text(encoding="utf-8"), "python -m tests.interop.matrix writes it anew"


def test_the_readme_names_each_host() -> None:
    readme = (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    assert [each.title for each in HOSTS if f"| {each.title} |" not in readme] == []
