"""The programs of the page about tasks in one's own code, run as they stand there, before `taskgate serve` as it comes.

Only the address is another. What the page says of tools that end early is tried with two released hosts.
"""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest
from example import environments

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from house.documents import DOCS, fences
from interop.columns import told_by
from interop.peers import HOME, output_of, python_server, require_peers
from interop.servers import legacy_server
from peers import install

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

PAGE = DOCS / "how-to" / "tasks-from-code.md"
ADDRESS = "http://127.0.0.1:8080/mcp"
SDKS = ("mcp.client.streamable_http", "@modelcontextprotocol/sdk", "@modelcontextprotocol/ext-tasks", "fastmcp_tasks")
"""The module of each program's SDK."""
LONGEST = 20
"""Lines of a program."""
WITHIN = 60.0
"""Seconds for a program."""
TASK = r"\b(?:[0-9a-f]{8}-[0-9a-f-]{27}|[\w-]{22,})\b"


def programs() -> dict[str, str]:
    """The programs of the page, by the module of its SDK."""
    of_page = [each.text for each in fences(PAGE) if each.language in ("python", "javascript")]
    return {next(sdk for sdk in SDKS if sdk in text): text for text in of_page}


def command(sdk: str) -> str | Path:
    """What runs the program of that SDK."""
    if sdk.startswith("@"):
        return install.node()
    return environments.python_of("fastmcp-4.1.4") if sdk == "fastmcp_tasks" else sys.executable


async def output_from(sdk: str, url: str, folder: Path) -> str:
    """What the program of that SDK prints, at another address."""
    program = folder / ("program.mjs" if sdk.startswith("@") else "program.py")
    folder.mkdir()
    (folder / "node_modules").symlink_to(HOME / "node_modules")
    program.write_text(programs()[sdk].replace(ADDRESS, url))
    status, output, errors = await output_of([command(sdk), program], within=WITHIN)
    assert status == 0, errors
    return output


async def test_every_program_of_the_page_gets_its_report_by_a_task(tmp_path: Path) -> None:
    require_peers("mcp-1.23.3", "fastmcp-4.1.4")
    async with legacy_server("1.23.3", tmp_path) as server:
        options = ["--upstream", server.url, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        async with gateway_process(options, log=tmp_path / "gateway.log") as gateway:
            url = f"http://{gateway.listen}/mcp"
            several = (output_from(sdk, url, tmp_path / str(number)) for number, sdk in enumerate(SDKS))
            printed = dict(zip(SDKS, await asyncio.gather(*several), strict=True))
    for sdk, output in printed.items():
        assert re.search(TASK, output), (sdk, output)
        assert "Report for Q3" in output, (sdk, output)
    assert server.ledger.count("finished generate_report Q3") == len(SDKS)


def test_no_program_of_the_page_is_long() -> None:
    assert sorted(programs()) == sorted(SDKS)
    assert {sdk: len(text.splitlines()) for sdk, text in programs().items() if len(text.splitlines()) > LONGEST} == {}


async def test_a_task_call_of_a_tool_that_ends_early_fails_unless_the_rule_says_always(tmp_path: Path) -> None:
    require_peers("mcp-2.3.0", "fastmcp-4.1.4")
    async with python_server("matrix_server.py", "2.3.0", tmp_path) as url:
        mounts = {mode: {"path": f"/{mode}/mcp", "url": url, "health": None} for mode in ("auto", "always")}
        rules = [{"upstream": mode, "tool": "*", "mode": mode} for mode in mounts]
        file = write_configuration(tmp_path, "", upstreams=mounts, tasks={"upgrade": rules})
        async with gateway_process(["--config", file], log=tmp_path / "gateway.log") as gateway:
            call = {"tool": "echo", "given": {"word": "back"}}
            places = [json.dumps({"url": f"http://{gateway.listen}/{mode}/mcp", **call}) for mode in mounts]
            rows = await asyncio.gather(*(told_by(host, places) for host in ("modern-fastmcp", "pydantic-ai")))
    for auto, always in rows:
        assert "did not run as a task" in json.dumps(auto)
        assert always["told"] == ["echo back", False]
