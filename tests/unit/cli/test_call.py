"""`taskgate call`: what it sends to a gateway, what it prints, and with which status it ends."""

import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from example.processes import UVICORN_LISTENS, Child, running

from helpers import told
from helpers.command_line import run
from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import TASKGATE, GatewayProcess, serve_process
from helpers.scripted_listener import Answered, Asked, scripted_listener
from helpers.secrets import noted
from helpers.waiting import bounded, eventually

CHECKOUT = Path(__file__).parents[3]
HELLO = {"content": [{"type": "text", "text": "hello"}]}
TOOLS = {"tools": [{"name": "add", "inputSchema": {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}}]}
Answers = dict[str, Any]


def answering(answers: Answers, sent: list[dict[str, Any]]) -> Callable[[Asked], Answered]:
    """A gateway that answers each method so; a list is answered one by one, the last for good."""

    def answer(asked: Asked) -> Answered:
        if asked.verb != "POST":
            return 405, b""
        message = json.loads(asked.body)
        sent.append(message)
        if "id" not in message or "method" not in message:
            return 202, b""
        found = answers.get(message["method"], {"protocolVersion": "2025-11-25"})
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        if isinstance(found, tuple):
            return found
        kind = "error" if "code" in found else "result"
        return 200, {"jsonrpc": "2.0", "id": message["id"], kind: found}, {"Content-Type": "application/json"}

    return answer


def call(answers: Answers, *arguments: str) -> tuple[int, str, str, list[dict[str, Any]]]:
    """The command before such a gateway, and the messages that it sent."""
    sent: list[dict[str, Any]] = []
    with scripted_listener(answering(answers, sent)) as listener:
        return (*run("call", "/mcp", "add", "--url", listener.url, *arguments), sent)


def task(status: str, **more: Any) -> dict[str, Any]:
    return {"taskId": "t1", "status": status, "pollInterval": 50, **more}


def methods(sent: list[dict[str, Any]]) -> list[str]:
    return [message["method"] for message in sent if "method" in message]


def test_a_plain_call_prints_the_text_of_its_result() -> None:
    status, out, err, sent = call({"tools/call": HELLO}, "--args-json", '{"a": 1}')
    assert (status, out, err) == (0, "hello\n", "")
    assert methods(sent) == ["initialize", "notifications/initialized", "tools/call"]
    assert (sent[-1]["params"]["name"], sent[-1]["params"]["arguments"]) == ("add", {"a": 1})
    assert "task" not in sent[-1]["params"]


def test_arguments_are_typed_by_the_schema_of_the_tool_also_on_a_later_page() -> None:
    pages = [{"tools": [{"name": "other"}], "nextCursor": "2"}, TOOLS]
    status, _, _, sent = call({"tools/call": HELLO, "tools/list": pages}, "--arg", "a=1", "--arg", "b=2")
    assert status == 0
    assert sent[-2]["params"] == {"cursor": "2"}
    assert sent[-1]["params"]["arguments"] == {"a": 1, "b": "2"}


def test_a_task_is_polled_until_it_ends_and_its_result_is_fetched() -> None:
    polls = [task("working"), task("working"), task("completed")]
    answers = {"tools/call": {"task": task("working")}, "tasks/get": polls, "tasks/result": HELLO}
    status, out, _, sent = call(answers, "--task")
    assert (status, out) == (0, "hello\n")
    assert sent[2]["params"]["task"] == {}
    assert methods(sent)[3:] == ["tasks/get", "tasks/get", "tasks/get", "tasks/result"]


def test_a_poll_that_fails_for_now_is_sent_again() -> None:
    polls = [(503, {"error": "overload"}), {"code": 429, "message": "too fast"}, task("completed")]
    answers = {"tools/call": {"task": task("working")}, "tasks/get": polls, "tasks/result": HELLO}
    status, out, _, _ = call(answers, "--task")
    assert (status, out) == (0, "hello\n")


def test_a_result_is_read_from_an_event_stream_behind_notifications_and_a_question() -> None:
    events = [
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 2, "progress": 1}},
        {"jsonrpc": "2.0", "id": 9, "method": "ping"},
        {"jsonrpc": "2.0", "id": 10, "method": "elicitation/create", "params": {}},
        {"jsonrpc": "2.0", "id": 2, "result": HELLO},
    ]
    stream = b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in events)
    status, out, _, sent = call({"tools/call": (200, stream, {"Content-Type": "text/event-stream"})})
    assert (status, out) == (0, "hello\n")
    answers = [message for message in sent if "method" not in message]
    assert [(each["id"], "result" in each) for each in answers] == [(9, True), (10, False)]


def test_a_stream_that_ends_before_the_answer_is_a_failure() -> None:
    status, _, err, _ = call({"tools/call": (200, b": nothing\n\n", {"Content-Type": "text/event-stream"})})
    assert (status, err) == (1, "taskgate: the connection ended before the answer\n")


def test_an_error_of_the_tool_ends_it_with_3_and_one_of_the_protocol_with_1() -> None:
    assert call({"tools/call": HELLO | {"isError": True}})[:2] == (3, "hello\n")
    status, out, err, _ = call({"tools/call": {"code": -32602, "message": "no\x1b[2J such\ntool"}})
    assert (status, out, err) == (1, "", "taskgate: no\ufffd[2J such tool (code -32602)\n")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((401, {"error": "invalid_token"}), "give --token FILE"),
        ((404, {"error": "not found"}), "there is no MCP endpoint at http"),
        ((302, b"", {"Location": "http://127.0.0.1:1/"}), "HTTP status 302"),
        ((200, b"<html>", {"Content-Type": "text/html"}), "the connection ended before the answer"),
        ((200, [], {"Content-Type": "application/json"}), "the connection ended before the answer"),
    ],
)
def test_an_answer_that_is_none_is_explained(answer: Answered, told: str) -> None:
    status, out, err, _ = call({"initialize": answer})
    assert (status, out) == (1, "")
    assert told in err


def test_control_characters_of_a_server_do_not_reach_the_terminal() -> None:
    hostile = "a\x1b]0;owned\x07\nb\x9b2J"
    blocks = [
        {"type": "text", "text": hostile},
        {"type": "image", "mimeType": hostile, "data": "AAAA"},
        {"type": "resource_link", "uri": hostile},
        {"type": "resource", "resource": {"uri": "x", "text": hostile}},
        {"type": hostile},
    ]
    for options in ((), ("--json",)):
        status, out, _, _ = call({"tools/call": {"content": blocks}}, *options)
        assert status == 0
        assert not {"\x1b", "\x07", "\x9b"} & {*out}


def test_structured_content_is_printed_where_there_is_no_text() -> None:
    status, out, _, _ = call({"tools/call": {"content": [], "structuredContent": {"sum": 3}}})
    assert (status, json.loads(out)) == (0, {"sum": 3})
    assert json.loads(call({"tools/call": HELLO}, "--json")[1]) == HELLO


def test_the_token_of_a_file_is_sent_and_one_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file, sent = tmp_path / "token", []
    file.write_text(noted("a-token-of-a-caller") + "\n")
    file.chmod(0o600)
    with scripted_listener(answering({"tools/call": HELLO}, sent)) as listener:
        assert run("call", f"{listener.url}/mcp", "add", "--token", file)[0] == 0
        assert {asked.headers["Authorization"] for asked in listener.asked} == {"Bearer a-token-of-a-caller"}
        file.chmod(0o644)
        status, _, err = run("call", f"{listener.url}/mcp", "add", "--token", file)
        assert status == 2
        assert "may be read or written by every user" in err


@pytest.mark.parametrize("content", ["", "two words", "x" * 40_000, "\x00"])
def test_a_file_without_a_token_is_refused_and_not_repeated(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(0o600)
    status, _, err = run("call", "/mcp", "add", "--token", file)
    assert status == 2
    assert "must hold one token" in err
    assert "two words" not in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("reports", "add"),
        ("ftp://a/b", "add"),
        ("http://u:p@a/b", "add"),
        ("http://[/", "add"),
        ("/mcp", "add", "--url", "x"),
        ("/mcp", "add", "--args-json", "["),
        ("/mcp", "add", "--timeout", "0"),
        ("/mcp", "add", "--timeout", "nan"),
        ("/mcp", "\udcff"),
    ],
)
def test_a_command_line_that_cannot_be_used_is_refused_with_2(arguments: tuple[str, ...]) -> None:
    status, out, err = run("call", *arguments)
    assert (status, out) == (2, "")
    assert err


def test_a_tool_that_is_not_listed_gets_no_typed_arguments() -> None:
    status, _, err, sent = call({"tools/list": {"tools": []}}, "--arg", "a=1")
    assert status == 2
    assert "the server lists no tool add" in " ".join(err.split())
    assert "tools/call" not in methods(sent)


def test_a_gateway_that_is_not_there_ends_it_with_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    status, _, err = run("call", f"http://127.0.0.1:{port}/mcp", "add")
    assert status == 1
    assert f"cannot reach http://127.0.0.1:{port}/mcp: connection refused\n" in err


def test_with_a_configuration_an_upstream_is_found_by_its_name(tmp_path: Path) -> None:
    sent: list[dict[str, Any]] = []
    with scripted_listener(answering({"tools/call": HELLO}, sent)) as listener:
        file = write_configuration(tmp_path, "http://a/", server=f'{{listen: "{listener.url.partition("//")[2]}"}}')
        assert run("call", "reports", "add", "--config", file)[:2] == (0, "hello\n")
        assert listener.asked[0].path == "/reports/mcp"
        status, _, err = run("call", "other", "add", "--config", file)
        assert (status, "must be one of reports" in err) == (2, True)


def test_a_task_that_does_not_end_in_time_is_cancelled_and_ends_it_with_124() -> None:
    answers = {"tools/call": {"task": task("working")}, "tasks/get": task("working")}
    status, out, err, sent = call(answers, "--task", "--timeout", "0.3")
    assert (status, out) == (124, "")
    assert err == "taskgate: no result within 0.3 s: the call was cancelled\n"
    assert (methods(sent)[-1], sent[-1]["params"]) == ("tasks/cancel", {"taskId": "t1"})


# --- through a real gateway -----------------------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    """A real gateway before the example's server, whose ledger is beside its log. It keeps nothing of a call."""
    folder = tmp_path_factory.mktemp("gateway")
    server = [sys.executable, CHECKOUT / "example" / "server.py", "--port", "0", "--ledger", folder / "ledger"]
    async with running(server, log=folder / "server.log") as upstream:
        async with bounded():
            url = (await upstream.said(UVICORN_LISTENS))[1].decode()
        async with serve_process(folder, f"{url}/mcp") as gateway:
            yield gateway


class Ledger:
    """The lines of a ledger from now on."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._before = len(self._text())

    def has(self, words: str) -> bool:
        return words in self._text()[self._before :]

    def _text(self) -> str:
        return self._file.read_text() if self._file.exists() else ""


@asynccontextmanager
async def calling(gateway: GatewayProcess, folder: Path, *arguments: str) -> AsyncIterator[tuple[Child, Ledger]]:
    """The command before that gateway, and what the ledger has of its call."""
    ledger = Ledger(gateway.log.with_name("ledger"))
    command = [TASKGATE, "call", "/reports/mcp", "generate_report", "--url", f"http://{gateway.listen}"]
    try:
        async with running([*command, *arguments], log=folder / "call.log") as child:
            yield child, ledger
    finally:
        told.now().hear(gateway.log.read_text())


async def ended(child: Child) -> int:
    async with bounded():
        return await child.process.wait()


@pytest.mark.parametrize("option", [["--task"], []], ids=["as a task", "plain"])
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.program
async def test_a_tool_behind_a_gateway_is_called(gateway: GatewayProcess, tmp_path: Path, option: list[str]) -> None:
    async with calling(gateway, tmp_path, "--arg", "quarter=Q3", "--arg", "seconds=0.1", *option) as (child, _):
        assert await ended(child) == 0
        async with bounded():
            await child.said(rb"^Report for Q3: revenue, costs, staff, forecast, summary.\n$")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("option", [["--task"], []], ids=["as a task", "plain"])
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.program
async def test_a_signal_cancels_the_call_at_its_server(
    gateway: GatewayProcess, tmp_path: Path, option: list[str], number: signal.Signals, status: int
) -> None:
    async with calling(gateway, tmp_path, "--arg", "quarter=Q3", "--arg", "seconds=600", *option) as (child, ledger):
        await eventually(lambda: ledger.has("started"))
        child.process.send_signal(number)
        assert await ended(child) == status
        await eventually(lambda: ledger.has("cancelled generate_report"))
