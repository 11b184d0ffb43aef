"""`make run` itself: the script that shows taskgate at work, as a process of its own."""

import asyncio
import os
import re
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any, TextIO

import aiohttp
import pytest
from example.addresses import free_addresses

from helpers import told
from helpers.prometheus_server import require_prometheus
from helpers.server import PROGRAM
from helpers.waiting import bounded, eventually
from interop.peers import require_peers
from interop.released import RELEASED
from peers import install

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "example" / "run.py"
WITHIN = 200.0
"""Seconds for one run of it, beside other tests on a slow machine."""
EVERYTHING = "@modelcontextprotocol/server-everything"
LINES = (
    "Starting a server, taskgate in front of it, and a host.",
    "An unmodified server listens at http://127.0.0.1:",
    "taskgate is in front of it at    http://127.0.0.1:",
    "Connected to reports ",
    ", which speaks MCP 2025-11-25.",
    "  generate_report  as a task: optional",
    "result: Report for Q3: revenue, costs, staff, forecast, summary.",
    "asked to cancel it: cancelled",
    "result: error -32800,",
    "the books for Q1 are missing",
    "quick_sum(19, 23), called plainly: 42",
    "Everything went as expected.",
)
AUTH_LINES = (
    "Tokens are issued at            http://127.0.0.1:",
    "A request without a token: 401",
    'Bearer resource_metadata="http://127.0.0.1:',
    "alice asks for a report:",
    "result: Report for Q3: revenue, costs, staff, forecast, summary.",
    "bob asks for that task:             error -32602, Task not found",
    "bob asks for one that never was: error -32602, Task not found",
    "the list of alice's tasks: 1 of them, has it",
    "the list of bob's tasks: 1 of them, has it",
    "the list of alice's tools lacks it",
    "alice calls it all the same: 403",
    'error="insufficient_scope", scope="reports.admin"',
    "Everything went as expected.",
)
REPLICAS_LINES = (
    "An unmodified server listens at http://127.0.0.1:",
    "taskgate 1 is in front of it at  http://127.0.0.1:",
    "taskgate 2 is in front of it at  http://127.0.0.1:",
    "taskgate 3 is in front of it at  http://127.0.0.1:",
    "They share a Valkey; in front of them, for hosts, is ",
    "Connected to reports ",
    "result: Report for Q3: revenue, costs, staff, forecast, summary.",
    "asked to cancel it: cancelled",
    "Everything went as expected.",
    "Requests were answered by all of them: ",
)
OBSERVE_LINES = (
    "Prometheus scrapes it, and is at http://127.0.0.1:",
    "Everything went as expected.",
    "What Prometheus saw:",
    "sum by (upstream) (taskgate_tasks_started_total)\n             3  upstream=default",
    "1  reason=client, status=cancelled",
    "1  reason=ok, status=completed",
    "1  reason=tool_error, status=completed",
    "1  disposition=direct, tool=quick_sum",
    "mcp_method_name=tools/call",
    "3  event=task.created",
    '    ALERTS{alertstate="firing"}\n',
)

SDK_LOG = "mcp.client.streamable_http"
READER = """
import sys
from pathlib import Path
from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations

server = FastMCP("files")

@server.tool()
def wipe() -> None:
    Path(sys.argv[1]).touch()

@server.tool("get-env", annotations=ToolAnnotations(readOnlyHint=True))
def environment() -> None:
    Path(sys.argv[1]).touch()

@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def look(path: str, depth: int = 1) -> None:
    Path(sys.argv[1]).touch()

server.run()
"""
STOPS = """
import os, signal, sys

class Stops:
    def find_spec(name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Stops)
"""


async def run_script(folder: Path | None = None, **environment: str) -> tuple[int | None, str, str]:
    """The script with these variables, in that folder: exit status, output, errors."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        SCRIPT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            **dict.fromkeys(("ONCE", "AUTH", "OBSERVE", "REPLICAS", "LISTEN", "ADMIN", "UPSTREAM"), ""),
            **environment,
        },
        cwd=folder,
    )
    try:
        async with bounded(WITHIN):
            output, errors = await child.communicate()
    finally:
        if child.returncode is None:
            child.terminate()
            await child.wait()
    return child.returncode, output.decode(), errors.decode()


async def log_of_the_run_after(before: set[Path], once: "asyncio.Task[Any]") -> TextIO:
    """The log of a gateway, opened while it is written: its folder is gone once all went well."""

    def there() -> list[Path]:
        return [log for log in ROOT.glob(".run/once-*/gateway*.log") if log.parent not in before]

    await eventually(lambda: once.done() or there(), within=WITHIN)
    assert there(), await once
    return there()[0].open()


async def expect_one_run(lines: tuple[str, ...], **environment: str) -> str:
    """That one run ends well, says these lines in their order, and leaves nothing; returns its output."""
    before = set(ROOT.glob(".run/once-*"))
    once = asyncio.create_task(run_script(ONCE="1", **environment))
    with await log_of_the_run_after(before, once) as log:
        status, output, errors = await once
        told.now().hear(log.read())
    assert (status, errors) == (0, "")
    places = [output.find(line) for line in lines]
    assert -1 not in places, output
    assert places == sorted(places), output
    assert set(ROOT.glob(".run/once-*")) <= before, "a run that went well leaves its folder"
    return output


async def test_one_run_shows_a_task_that_completes_one_cancelled_one_failed_and_a_plain_call() -> None:
    await expect_one_run(LINES)


async def test_one_run_listens_where_it_is_told_to() -> None:
    listen, admin = free_addresses()
    output = await expect_one_run(LINES, LISTEN=str(listen), ADMIN=str(admin))
    assert f"taskgate is in front of it at    http://{listen}/mcp" in output


@pytest.mark.parametrize("environment", [{}, {"REPLICAS": "2"}], ids=["one", "replicas"])
async def test_a_run_that_serves_on_prints_a_link_by_which_the_console_signs_in(environment: dict[str, str]) -> None:
    listen, admin = free_addresses()
    names = {"LISTEN": str(listen), "ADMIN": str(admin), "UPSTREAM": ""}
    if not environment:
        names["UPSTREAM"] = f"{sys.executable} -IS {PROGRAM} --words 'a b' '$HOME'"
    child = await asyncio.create_subprocess_exec(
        sys.executable, SCRIPT, stdout=asyncio.subprocess.PIPE, env={**os.environ, **names, **environment}
    )
    assert child.stdout is not None
    try:
        async with bounded(WITHIN):
            before: list[str] = []
            while b"/ui#token=" not in (line := await child.stdout.readline()):
                assert line != b"", "it ended"
                before.append(line.decode().strip())
        assert before[0].startswith("Starting ")
        assert f"claude mcp add --transport http taskgate-example http://{listen}/mcp" in before
        assert f'"url": "http://{listen}/mcp"' in before[before.index("VS Code, in .vscode/mcp.json:") + 1]
        assert any(each.startswith(f"curl -s http://{listen}/mcp ") for each in before) is bool(environment)
        [url, token] = line.decode().split()[-1].split("#token=")
        async with bounded(), aiohttp.ClientSession(headers={"Origin": url.removesuffix("/ui")}) as page:
            async with page.get(url) as shown:
                assert (shown.status, shown.content_type) == (200, "text/html")
            async with page.post(f"{url}/session", headers={"Authorization": f"Bearer {token}"}) as signed_in:
                assert (signed_in.status, (await signed_in.json())["role"]) == (200, "operator")
    finally:
        child.send_signal(signal.SIGINT)
        async with bounded():
            # Its pipe is read to the end: it writes once more.
            await child.communicate()


async def test_one_run_before_a_program_of_ones_own_lists_its_tools() -> None:
    program = f"{sys.executable} -IS {PROGRAM} --words 'a b'"
    lines = ("taskgate is in front of", program, "Connected to talking ", "  echo  ", "  crash  ", "No tool was called")
    before = set(ROOT.glob(".run/once-*"))
    status, output, errors = await run_script(ONCE="1", UPSTREAM=program)
    assert (status, errors) == (0, "")
    assert [line for line in lines if line not in output] == []
    assert set(ROOT.glob(".run/once-*")) <= before


async def test_one_run_before_a_tool_that_only_reads_prints_its_call_and_makes_none(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(READER)
    called = tmp_path / "called"
    status, output, errors = await run_script(ONCE="1", UPSTREAM=f"{sys.executable} {program} {called}")
    assert (status, errors) == (0, "")
    assert re.search(r"^  \.venv/bin/taskgate call http://127\.0\.0\.1:\d+/mcp look --arg path=hello$", output, re.M)
    assert not called.exists()


async def test_a_server_of_ones_own_that_does_not_answer_is_named_with_the_reason() -> None:
    before = set(ROOT.glob(".run/once-*"))
    status, output, errors = await run_script(ONCE="1", UPSTREAM="http://127.0.0.1:1/mcp")
    assert (status, "Traceback" in output + errors) == (1, False)
    assert errors == (
        "make run: UPSTREAM=http://127.0.0.1:1/mcp: (unreachable): The server could not be reached: connection refused "
        "(ECONNREFUSED) at http://127.0.0.1:1/mcp; check that the server runs, and its url or command\n"
    )
    [folder] = set(ROOT.glob(".run/once-*")) - before
    shutil.rmtree(folder)


@pytest.mark.parametrize(("error", "is_told"), [("ClosedResourceError", False), ("ValueError", True)])
async def test_an_event_that_comes_while_a_host_leaves_is_no_traceback(error: str, is_told: bool) -> None:
    """As the SDK logs it, which a run hardly ever meets."""
    log = f"log.error('Error parsing SSE message', exc_info={error}())"
    program = f"import host, logging; from anyio import *; log = logging.getLogger({SDK_LOG!r}); {log}"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=SCRIPT.parent, stderr=asyncio.subprocess.PIPE
    )
    async with bounded(WITHIN):
        _, errors = await child.communicate()
    assert (child.returncode, error in errors.decode()) == (0, is_told)


@pytest.mark.parametrize("module", ["asyncio", "yours"])
async def test_a_run_that_is_stopped_while_it_loads_ends_without_a_traceback(module: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(STOPS.format(module=module))
    status, output, errors = await run_script(ONCE="1", AUTH="1", PYTHONPATH=str(tmp_path))
    assert (status, output, errors) == (-signal.SIGINT, "", "")


async def test_one_run_before_the_reference_server_needs_nothing_but_npx() -> None:
    require_peers()
    if shutil.which("npx") is None:
        missing = pytest.fail if install.nothing_may_be_missing() else pytest.skip
        missing("there is no npx here (Debian: apt-get install nodejs npm)")
    # Where it is installed npx asks no registry for it.
    status, output, errors = await run_script(install.HOME, ONCE="1", UPSTREAM=f"npx -y {EVERYTHING}")
    assert (status, errors) == (0, "")
    tools = [*next(each.tools for each in RELEASED if each.name == "everything-2026-08")]
    assert [tool for tool in tools if not re.search(rf"^  {tool} +as a task: optional$", output, re.M)] == []


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        (
            {"UPSTREAM": "no-such-program -y a"},
            "UPSTREAM=no-such-program -y a: there is no program 'no-such-program' here",
        ),
        (
            {"UPSTREAM": "npx -y a", "PATH": "/nowhere"},
            "UPSTREAM=npx -y a: there is no program 'npx' here: "
            "it comes with Node.js (Debian: apt-get install nodejs npm)",
        ),
        ({"UPSTREAM": "a 'b"}, "UPSTREAM=a 'b: this should be a URL or a command (No closing quotation)"),
        (
            {"UPSTREAM": "true", "AUTH": "1", "REPLICAS": "2"},
            "UPSTREAM does not go together with AUTH and REPLICAS, which show the example's server",
        ),
    ],
)
async def test_a_server_of_ones_own_that_cannot_be_had_is_told_before_anything_is_started(
    environment: dict[str, str], told: str
) -> None:
    assert await run_script(ONCE="1", **environment) == (1, "", f"make run: {told}\n")


async def test_one_run_with_tokens_shows_that_a_task_is_its_owners_alone_and_that_a_tool_needs_a_scope() -> None:
    await expect_one_run(AUTH_LINES, AUTH="1")


async def test_one_run_with_replicas_shows_that_a_host_meets_all_of_them_and_notices_nothing() -> None:
    await expect_one_run(REPLICAS_LINES, REPLICAS="3")


async def test_one_run_with_replicas_and_tokens_shows_that_a_token_is_good_at_all_of_them() -> None:
    await expect_one_run((*AUTH_LINES, "Requests were answered by all of them: "), REPLICAS="2", AUTH="1")


async def test_a_gateway_that_ends_at_once_is_told_so_and_not_as_one_that_is_slow(tmp_path: Path) -> None:
    ends = 'import os, sys\nif "serve" in sys.orig_argv:\n    print("here I end", flush=True)\n    os._exit(3)\n'
    (tmp_path / "sitecustomize.py").write_text(ends)
    before = set(ROOT.glob(".run/once-*"))
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    status, _, errors = await run_script(ONCE="1", REPLICAS="2", PYTHONPATH=path)
    [folder] = set(ROOT.glob(".run/once-*")) - before
    shutil.rmtree(folder)
    assert status == 1
    assert "here I end" in errors
    assert errors.endswith(f"make run: gateway-1 ended at once; what it said is in {folder / 'gateway-1.log'}\n")


@pytest.mark.parametrize("value", ["three", "10", "-1", "2.5"])
async def test_a_number_of_replicas_that_is_none_is_told_before_anything_is_started(value: str) -> None:
    status, output, errors = await run_script(ONCE="1", REPLICAS=value)
    assert (status, output) == (1, "")
    assert errors == f"make run: REPLICAS={value}: this should be a number up to 9\n"


# A machine that is busy with other tests deserves alerts.
@pytest.mark.alone
async def test_one_run_with_prometheus_shows_what_that_saw_and_no_alert_fires() -> None:
    require_prometheus()
    output = await expect_one_run(OBSERVE_LINES, OBSERVE="1")
    assert output.endswith(OBSERVE_LINES[-1]), "an alert fires"


async def test_a_run_that_is_to_be_observed_says_that_prometheus_is_missing_before_it_starts_anything(
    tmp_path: Path,
) -> None:
    before = set(ROOT.glob(".run/once-*"))
    status, output, errors = await run_script(ONCE="1", OBSERVE="1", PATH=str(tmp_path))
    assert (status, output) == (1, "")
    assert re.fullmatch(
        r"make run: OBSERVE=1 needs Prometheus, but there is no prometheus here \(Debian: .*\)\n", errors
    )
    assert set(ROOT.glob(".run/once-*")) <= before


@pytest.mark.parametrize("once", ["", "1"], ids=["plain", "once"])
@pytest.mark.parametrize("name", ["LISTEN", "ADMIN"])
async def test_a_run_says_that_its_port_is_taken_and_how_to_take_another(name: str, once: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, output, errors = await run_script(
            **{"LISTEN": "127.0.0.1:0", "ADMIN": "127.0.0.1:0", "ONCE": once, name: address}
        )
    assert (status, output) == (1, "")
    assert errors.startswith(f"make run: cannot listen on {address} (Address already in use): is another program")
    assert "make run LISTEN=" in errors


@pytest.mark.parametrize("value", ["8080", ":8080", "127.0.0.1:http", "127.0.0.1:65536"])
async def test_a_plain_run_refuses_what_is_no_address(value: str) -> None:
    assert await run_script(LISTEN=value) == (1, "", f"make run: LISTEN={value}: this should be HOST:PORT\n")
