"""A key that a server may take for one that the gateway read: refused in every place, and no server hears of it."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import ScriptedServer
from helpers.waiting import bounded

IDEMPOTENCY_KEY, INVALID_REQUEST = "io.taskgate/idempotency-key", -32600
ALIKE: dict[str, str] = {
    "another name": '"name":"echo","Name":"danger"',
    "the other first": '"NAME":"danger","name":"echo"',
    "escaped": r'"name":"echo","n\u0041me":"danger"',
    "behind NUL": r'"name":"echo","name\u0000":"danger"',
    "other arguments": '"name":"echo","arguments":{},"argument\u017f":{"all":true}',
    "another meta": '"name":"echo","_meta":{"progressToken":1},"_META":{"progressToken":2}',
    "a task after all": '"name":"echo","tas\u212a":{}',
    "a task of another time": '"name":"echo","task":{"ttl":60000,"TTL":1}',
    "another progress token": '"name":"echo","_meta":{"progressToken":1,"progresstoken":2}',
    "another key of ours": f'"name":"echo","_meta":{{"{IDEMPOTENCY_KEY}":"a","{IDEMPOTENCY_KEY.title()}":"b"}}',
    "many more members": '"name":"echo","arguments":{"x":"' + "x" * 9000 + '"},"Name":"danger"',
}


def call(params: str, id: int = 7) -> str:
    return f'{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{params}}}}}'


@pytest.mark.parametrize("params", ALIKE.values(), ids=ALIKE)
async def test_a_call_in_a_session_is_refused(host: Host, server: ScriptedServer, params: str) -> None:
    answer = await host.post(call(params).encode())
    assert (answer.status, answer.code, answer.message and answer.message["id"]) == (400, INVALID_REQUEST, 7)
    assert server.heard("tools/call") == []


@pytest.mark.parametrize("params", ALIKE.values(), ids=ALIKE)
async def test_a_call_for_a_task_is_refused(host: Host, server: ScriptedServer, params: str) -> None:
    wish = "" if '"task"' in params else ',"task":{}'
    assert (await host.post(call(params + wish).encode())).code == INVALID_REQUEST
    assert server.heard("tools/call") == []


@pytest.mark.parametrize("params", ALIKE.values(), ids=ALIKE)
async def test_a_call_in_a_batch_is_refused_and_the_others_are_answered(
    gateway: Gateway, server: ScriptedServer, params: str
) -> None:
    host = await gateway.greeted("2025-03-26")
    other = call('"name":"echo","arguments":{"of":8}', 8)
    head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    head |= {"Mcp-Session-Id": host.session or ""}
    async with host.http.post(host.url, data=f"[{call(params)},{other}]".encode(), headers=head) as response:
        answers = {answer.get("id"): answer for answer in await response.json()}
    assert answers[7]["error"]["code"] == INVALID_REQUEST
    assert answers[8]["result"]["structuredContent"] == {"of": 8}
    assert [heard["params"]["arguments"] for heard in server.heard("tools/call")] == [{"of": 8}]


@pytest.mark.parametrize("params", ALIKE.values(), ids=ALIKE)
async def test_a_call_of_the_modern_era_is_refused_though_its_headers_name_the_tool(
    gateway: Gateway, server: ScriptedServer, params: str
) -> None:
    host = Host(gateway.http, gateway.url(), era="modern")
    usual = host.written("tools/call", {"name": "echo"}, id=7)
    meta = json.dumps(usual["params"]["_meta"])
    if '"_meta"' in params:
        body = call(params.replace('"_meta":{', f'"_meta":{{{meta[1:-1]},'))
    else:
        body = call(f'{params},"_meta":{meta}')
    answer = await host.post(body.encode(), host.routing(usual))
    assert (answer.status, answer.code) == (400, INVALID_REQUEST)
    assert server.heard("tools/call") == []


@pytest.mark.parametrize("more", ['"Method":"tools/call"', '"PARAMS":{"name":"danger"}', '"Id":8'])
async def test_a_member_of_the_message_itself_is_refused(host: Host, server: ScriptedServer, more: str) -> None:
    answer = await host.post(f'{{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{{}},{more}}}'.encode())
    assert answer.code == INVALID_REQUEST
    assert server.heard("tools/call") == []


# --- judged by the decoder of Go ------------------------------------------------------------------------------------

GO = shutil.which("go")
SOURCE = Path(__file__).parents[1] / "peers" / "folding_server" / "main.go"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server in Go, built."""
    if GO is None:
        pytest.skip("there is no go")
    folder = tmp_path_factory.mktemp("go")
    binary = folder / "folding"

    async def build() -> None:
        building = await asyncio.create_subprocess_exec(
            *(GO or "go", "build", "-o", binary, SOURCE),
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "GOFLAGS": "-mod=mod", "GO111MODULE": "off"},
        )
        async with asyncio.timeout(120):
            assert await building.wait() == 0

    asyncio.run(build())
    return binary


@pytest.fixture
async def judged(judge: Path) -> AsyncIterator[Host]:
    """A host behind a gateway before the server in Go."""
    upstream = {"path": "/reports/mcp", "transport": "stdio", "command": [str(judge)]}
    async with serve(configuration({}, upstreams={"reports": upstream})) as gateway:
        yield await gateway.greeted()


async def decoded(judge: Path, line: str) -> dict[str, Any]:
    """What the server runs when it is sent a call by itself."""
    process = await asyncio.create_subprocess_exec(judge, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    async with bounded():
        answer, _ = await process.communicate(line.encode() + b"\n")
    ran: dict[str, Any] = json.loads(answer)["result"]["structuredContent"]
    return ran


RUN_OTHERWISE = [
    "another name",
    "escaped",
    "other arguments",
    "a task after all",
    "many more members",
]


@pytest.mark.parametrize("case", RUN_OTHERWISE)
async def test_what_go_would_run_otherwise_does_not_reach_it(judge: Path, judged: Host, case: str) -> None:
    ran = await decoded(judge, call(ALIKE[case]))
    exact = dict(json.loads(f"{{{ALIKE[case]}}}"))
    # The judge does take it for another call, or there were nothing to refuse.
    assert (ran["tool"], ran["arguments"], ran["task"]) != (exact["name"], exact.get("arguments"), exact.get("task"))
    assert (await judged.post(call(ALIKE[case]).encode())).code == INVALID_REQUEST


async def test_go_runs_what_passes_as_it_was_read(judged: Host) -> None:
    arguments = {"Name": "danger", "name": 1, "NAME": 2}
    answer = await judged.call("echo", arguments, other=1)
    assert answer.result["structuredContent"] == {"tool": "echo", "arguments": arguments, "task": None}
