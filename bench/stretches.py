"""The event loop's longest stretch by one message: how long a large one of a hostile shape keeps all others waiting.

The command line: `python -m bench.stretches [--size BYTES] [--rounds N] [--json FILE]`. A gateway runs in
this process. A host and a server in threads of their own send each shape, as a request and as the answer to a small
one. A timer on the loop is due each millisecond, and late where the loop is busy or another thread has the
interpreter. Prints Markdown: the most that it was late by one message in milliseconds, the least over the rounds. Ends
with 0 whether the goal is met or not, and with 1 without an answer.
"""

import argparse
import asyncio
import gc
import http.client
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Final, NamedTuple

from bench import host, report
from bench.failures import BenchFailed
from taskgate.config.model import GatewayConfig
from taskgate.wiring.app import Service

GOAL: Final = 20.0
"""Milliseconds for which one message keeps the loop from all others at most."""
SIZE: Final = 4 * 2**20
_ENVELOPE: Final = 300
"""Bytes of a message around its hostile part, or more."""
_PERIOD: Final = 0.001
_SETTLE: Final = 0.02
"""Seconds for what the gateway does behind its answer."""
_ID: Final = re.compile(rb'"id":\s*(\d+)')
_BY_METHOD: Final[dict[str, dict[str, Any]]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "stub", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
    "ping": {},
}


def _value(write: Callable[[int], str]) -> Callable[[int], str]:
    return lambda size: f'"arguments":{{"a":{write(size)}}}'


def _listed(one: str) -> Callable[[int], str]:
    return _value(lambda size: f"[{f'{one},' * (size // (len(one) + 1))}0]")


def _members(value: str) -> Callable[[int], str]:
    return lambda size: ",".join(f'"{number:07x}":{value}' for number in range(size // (len(value) + 11)))


SHAPES: Final[dict[str, Callable[[int], str]]] = {
    "arrays": _listed("[]"),
    "arrays, as many as a request may have": _listed(f'["{"a" * 36}"]'),
    "nests of 30 arrays": _listed("[" * 30 + "]" * 30),
    "members in params": _members("0"),
    "arrays in params": _members("[]"),
    "members in arguments": lambda size: f'"arguments":{{{_members("0")(size)}}}',
    "not JSON": _value(lambda size: f"[{'0,' * (size // 2)}"),
    "numbers": _listed("0"),
    "numbers with a fraction": _listed("0.1234567"),
    "strings": _listed('"aa"'),
    "escapes": _value(lambda size: '"' + "\\u0041" * (size // 6) + '"'),
    "one string": _value(lambda size: '"' + "a" * size + '"'),
}
"""What makes the hostile members of `params`, or of a server's result, in so many bytes."""


class Stretch(NamedTuple):
    """One shape: how late the loop was at most in milliseconds, once for each round, and what became of it."""

    shape: str
    as_request: list[float]
    request: str
    as_answer: list[float]
    answer: str


class _Timer:
    """A timer on the running loop that is due each millisecond; `latest` is the most that it was late, in seconds."""

    def __init__(self) -> None:
        self.latest = 0.0
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(_PERIOD, self._due)

    def _due(self) -> None:
        self.latest = max(self.latest, self._loop.time() - self._next.when())
        self._next = self._loop.call_later(_PERIOD, self._due)

    def stop(self) -> None:
        """It is due no more."""
        self._next.cancel()


class _Server(ThreadingHTTPServer):
    """An MCP server that answers each call with `members` as its result; `called` counts the calls that reach it."""

    daemon_threads = True
    members = b'"content":[]'
    called = 0


class _Asked(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        head = body[:_ENVELOPE]
        found, named = _ID.search(head), re.search(rb'"method":\s*"([^"]+)"', head)
        if found is None or named is None:
            self._answer(202, b"")
            return
        method = named[1].decode()
        if method == "tools/call":
            self.server.called += 1
            result = b"{%s}" % self.server.members
        else:
            result = json.dumps(_BY_METHOD.get(method)).encode()
        said = b'"error":{"code":-32601,"message":"no"}' if result == b"null" else b'"result":' + result
        self._answer(200, b'{"jsonrpc":"2.0","id":%s,%s}' % (found[1], said))

    def do_GET(self) -> None:
        self._answer(405, b"")

    def do_DELETE(self) -> None:
        self._answer(200, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def _serving() -> Iterator[_Server]:
    with _Server(("127.0.0.1", 0), _Asked) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def _configuration(server: _Server) -> GatewayConfig:
    upstream = {"path": host.PATH, "url": f"http://127.0.0.1:{server.server_port}/mcp"}
    return GatewayConfig.model_validate(
        {
            "version": 1,
            "server": {"listen": "127.0.0.1:0", "drain": {"delay": "0s"}},
            "admin": {"listen": "127.0.0.1:0"},
            "auth": {"mode": "none"},
            "store": {"backend": "memory"},
            "audit": {"sinks": [{"name": "file", "type": "file"}]},
            "logging": {"level": "error"},
            "limits": {"rate": []},
            "upstreams": {"stub": {**upstream, "health": None, "circuit_breaker": None}},
        }
    )


def _call(members: str) -> bytes:
    return f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"echo",{members}}}}}'.encode()


def _post(port: int, heads: host.Heads, body: bytes) -> bytes:
    """The answer to a body that is no JSON perhaps, whatever its status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=host.WAIT_BOUND)
    given = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **heads}
    try:
        connection.request("POST", host.PATH, body, given)
        return connection.getresponse().read()
    except OSError as failure:
        raise BenchFailed(f"no answer: {failure!r}") from None
    finally:
        connection.close()


async def _stretch(port: int, heads: host.Heads, body: bytes) -> tuple[float, bytes]:
    gc.collect()
    await asyncio.sleep(_SETTLE)
    timer = _Timer()
    answer = await asyncio.to_thread(_post, port, heads, body)
    await asyncio.sleep(_SETTLE)
    timer.stop()
    return timer.latest * 1e3, answer


def _became(answer: bytes, reached: bool) -> str:
    code = re.search(rb'"error":\s*\{"code":\s*(-?\d+)', answer[-_ENVELOPE:] + answer[:_ENVELOPE])
    if code is None:
        return "relayed"
    return f"{'fails' if reached else 'refused'}, {code[1].decode()}"


async def _measure(server: _Server, folder: Path, shapes: list[str], size: int, rounds: int) -> list[Stretch]:
    service = Service(_configuration(server), data_directory=folder)
    await service.start()
    try:
        port, found, usual = service.address[1], [], b'"content":[]'
        heads = await asyncio.to_thread(host.open_session, port)
        small = _call('"arguments":{}')
        for shape in shapes:
            members = SHAPES[shape](size - _ENVELOPE)
            server.members, before = usual, server.called
            asked = [await _stretch(port, heads, _call(members)) for _ in range(rounds)]
            reached = server.called > before
            server.members = usual + b"," + members.encode()
            answered = [await _stretch(port, heads, small) for _ in range(rounds)]
            figures = [took for took, _ in asked], [took for took, _ in answered]
            ends = _became(asked[-1][1], reached), _became(answered[-1][1], True)
            found.append(Stretch(shape, figures[0], ends[0], figures[1], ends[1]))
        return found
    finally:
        await service.close()


def measure(shapes: list[str], *, size: int = SIZE, rounds: int = 5) -> list[Stretch]:
    """So many rounds of each shape in so many bytes. Raises BenchFailed."""
    with _serving() as server, TemporaryDirectory() as folder, asyncio.Runner() as runner:
        return runner.run(_measure(server, Path(folder), shapes, size, rounds))


def told(found: list[Stretch]) -> str:
    """The table, and by which shapes the goal is missed."""
    lines = ["| shape | request, ms | becomes | answer, ms | becomes |", "|---|--:|---|--:|---|"]
    lines += [
        f"| {one.shape} | {min(one.as_request):.1f} | {one.request} | {min(one.as_answer):.1f} | {one.answer} |"
        for one in found
    ]
    missed = [
        f"{one.shape} ({what})"
        for one in found
        for what, took in (("request", one.as_request), ("answer", one.as_answer))
        if min(took) > GOAL
    ]
    verdict = f"MISSED by {'; '.join(missed)}" if missed else "met"
    return "\n".join([*lines, "", f"The goal of {GOAL:g} ms is {verdict}."])


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.stretches", description="the loop's longest stretch")
    parser.add_argument("--size", type=int, default=SIZE, metavar="BYTES", help="of a message")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of each shape")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round's figures there")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    print(report.machine_line(), flush=True)
    try:
        found = measure(list(SHAPES), size=given.size, rounds=given.rounds)
    except BenchFailed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    print(told(found))
    if given.json:
        given.json.write_text(json.dumps([one._asdict() for one in found], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
