"""The usual requests of one host, each sent alone: what `instructions` and `system_calls` count, and how it is started.

A gateway is started under a tool that counts. It has a store on disk, metrics, an audit log and a rate, no tokens.
"""

import http.client
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench import host, targets
from bench.failures import BenchFailed
from bench.processes import Program, ended, free_port
from bench.scenarios import SSE_EVENTS, call, task_call

BETWEEN: Final = 0.06  # seconds from an answer to the next request; longer than events wait to be read
READY_BOUND: Final = 300.0  # seconds; nothing is fast under valgrind
_RATES: Final = '[{name: calls, scope: context, methods: ["*"], rate: "100000/s", burst: 100000}]'
_MODERN: Final = "2026-07-28"
_OWN: Final = "io.modelcontextprotocol/"

Act = Callable[[], object]


class Requests:
    """A host whose requests go over one connection that is kept."""

    def __init__(self, port: int, stub: targets.Running) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=READY_BOUND)
        self._session = host.open_session(port)
        self._stub = stub
        self._held = host.create(port, self._session, task_call("hold"))

    def kinds(self) -> dict[str, Act]:
        """What sends a request of each kind, and reads its answer."""
        echo, poll = call("echo", text="hello"), {"taskId": self._held}
        events = {**call("stream", events=SSE_EVENTS), "_meta": {"progressToken": "t"}}
        return {
            "plain call, legacy host": lambda: self._ask("tools/call", echo),
            "plain call, modern host": lambda: self._ask_modern("tools/call", "echo", echo),
            "`tasks/get`, legacy host": lambda: self._ask("tasks/get", poll),
            "`tasks/get`, modern host": lambda: self._ask_modern("tasks/get", self._held, poll),
            "a task created, run, stored, and its result fetched": self._run,
            f"a stream of {SSE_EVENTS} events and its answer": lambda: self._ask("tools/call", events),
        }

    def close(self) -> None:
        """Have the server answer the call that it holds."""
        host.release(self._stub.port)
        self._connection.close()

    def _run(self) -> None:
        task = json.loads(self._ask("tools/call", task_call("echo", text="hello")))["result"]["task"]["taskId"]
        self._ask("tasks/result", {"taskId": task})

    def _ask(self, method: str, params: dict[str, Any]) -> bytes:
        return post(self._connection, {"method": method, "params": params}, self._session)

    def _ask_modern(self, method: str, name: str, params: dict[str, Any]) -> bytes:
        meta = {
            f"{_OWN}protocolVersion": _MODERN,
            f"{_OWN}clientInfo": {"name": "bench", "version": "1"},
            f"{_OWN}clientCapabilities": {"extensions": {f"{_OWN}tasks": {}}},
        }
        heads = {"MCP-Protocol-Version": _MODERN, "Mcp-Method": method, "Mcp-Name": name}
        return post(self._connection, {"method": method, "params": {**params, "_meta": meta}}, heads)


def post(connection: http.client.HTTPConnection, message: dict[str, Any], heads: host.Heads) -> bytes:
    """Send one message, and read its answer to the end."""
    given = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **heads}
    connection.request("POST", host.PATH, json.dumps({"jsonrpc": "2.0", "id": 7, **message}).encode(), given)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise BenchFailed(f"status {answer.status}: {content[:300]!r}")
    return content


@contextmanager
def started(
    tool: Sequence[str], stub: targets.Running, folder: Path, tree: Path | None = None
) -> Iterator[tuple[Program, Requests]]:
    """A gateway under a tool, and a host that it answers."""
    place = targets.Place(
        port=free_port(),
        stub_port=stub.port,
        folder=folder,
        revision='"2025-11-25"',
        tree=tree,
        parts={"rate": _RATES},
    )
    command = [*tool, sys.executable, "-m", "taskgate", *targets.command_of_taskgate(place)]
    environment = {**place.environment, "PYTHONHASHSEED": "0"}
    with ended(Program("taskgate", command, environment=environment)) as program:
        _await_answer(program, lambda: host.open_session(place.port))
        requests = Requests(place.port, stub)
        try:
            yield program, requests
        finally:
            requests.close()


@contextmanager
def started_anchor(tool: Sequence[str]) -> Iterator[tuple[Program, Act]]:
    """The answerer under a tool, and what sends it a request."""
    port = free_port()
    command = [*tool, sys.executable, "-m", "bench.answerer", "--port", str(port)]
    with ended(Program("answerer", command, environment={"PYTHONHASHSEED": "0"})) as program:
        message: dict[str, Any] = {"method": "tasks/get", "params": {}}
        _await_answer(program, lambda: host.ask(port, {}, **message))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=READY_BOUND)
        yield program, lambda: post(connection, message, {})
        connection.close()


def _await_answer(program: Program, act: Act) -> None:
    until = time.monotonic() + READY_BOUND
    while True:
        program.require_running()
        try:
            act()
            return
        except (OSError, http.client.HTTPException, BenchFailed):
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
