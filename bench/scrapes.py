"""For how long a scrape of many series holds up the event loop of a gateway that runs.

The gateway is in a process of its own with a probe: a timer of one millisecond on its loop, which sees how late it
comes. What is scraped are events of made-up calls, so that every server has as many series as it may have.
"""

import argparse
import asyncio
import http.client
import json
import sys
import time
from typing import Any, Final, NamedTuple

from bench import serving
from bench.processes import Program, ended, free_port, python
from taskgate.config.model import GatewayConfig
from taskgate.telemetry.events import UpstreamAnswered
from taskgate.telemetry.request_context import RequestContext
from taskgate.wiring.app import Service

SERIES: Final = 7_000
GOAL: Final = 15.0
"""Milliseconds that the loop is held up at most."""
_BASE, _EACH = 860, 418
"""Series of a gateway, and of each of its servers, in this benchmark; about."""
_PROBE: Final = 0.001
_QUIET: Final = 0.5
"""Seconds for which the loop is watched without a scrape, for comparison."""
_ERRORS: Final = (None, "tool_error", "-32603", "429", "503", "-32602", "-32601", "cancelled", "403")
_METHODS: Final = ("tools/call", "tools/list", "tasks/get", "tasks/result", "prompts/get", "resources/read", "ping")


class Scraped(NamedTuple):
    """One scrape, or none for comparison: series, milliseconds that it took, and the longest that the loop waited."""

    series: int
    took: float
    stall: float


class _Probe:
    """A timer on the running loop that keeps by how much it came late at worst."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.worst = 0.0
        self._arm()

    def _arm(self) -> None:
        self._loop.call_at(self._loop.time() + _PROBE, self._tick, self._loop.time() + _PROBE)

    def _tick(self, due: float) -> None:
        self.worst = max(self.worst, self._loop.time() - due)
        self._arm()


def _configuration(admin_port: int, servers: int) -> GatewayConfig:
    upstreams = {
        f"server-{number}": {"path": f"/{number}", "url": "http://127.0.0.1:1/mcp", "health": None}
        for number in range(servers)
    }
    return GatewayConfig.model_validate(
        {
            "version": 1,
            "server": {"listen": "127.0.0.1:0", "drain": {"delay": "0s"}},
            "admin": {"listen": f"127.0.0.1:{admin_port}"},
            "auth": {"mode": "none"},
            "store": {"backend": "memory"},
            "audit": {"enabled": False},
            "logging": {"level": "warning"},
            "upstreams": upstreams,
        }
    )


async def _serve(admin_port: int, servers: int) -> None:
    """Be the gateway, and tell on stdout how late the probe came at worst since the last line on stdin."""
    service = Service(_configuration(admin_port, servers), data_directory=None)
    await service.start()
    emit = service._telemetry.event_sink.emit
    for number in range(servers):
        for method in _METHODS:
            for error in _ERRORS:
                request_context = RequestContext("", "", "POST", "")
                request_context.mount, request_context.method, request_context.error = f"server-{number}", method, error
                request_context.rpc_revision, request_context.rpc_seconds = "2025-11-25", 0.01
                emit(request_context)
                emit(UpstreamAnswered(f"server-{number}", method, 0.01, error))
    probe, orders = _Probe(), asyncio.Queue[str]()
    asyncio.get_running_loop().add_reader(sys.stdin, lambda: orders.put_nowait(sys.stdin.readline()))
    order = "begin"
    while order:
        print(json.dumps(probe.worst * 1e3), flush=True)
        probe.worst = 0.0
        order = await orders.get()
    await service.close()


def measure(series: int, *, rounds: int) -> tuple[list[Scraped], list[Scraped]]:
    """So many scrapes, and before each as long a look at the loop without one, or longer."""
    servers, port = max(1, -(-(series - _BASE) // _EACH)), free_port()
    command = python("scrapes", "--port", str(port), "--servers", str(servers))
    quiet, scraped = [], []
    with ended(Program("the gateway", command, piped=True)) as program:
        _heard(program)
        _scrape(port)
        for _ in range(rounds):
            _heard(program, tell=True)
            time.sleep(_QUIET)
            quiet.append(Scraped(0, _QUIET * 1e3, _heard(program, tell=True)))
            count, took = _scrape(port)
            scraped.append(Scraped(count, took, _heard(program, tell=True)))
    return quiet, scraped


def _heard(program: Program, *, tell: bool = False) -> float:
    pipes: Any = program.popen
    if tell:
        pipes.stdin.write(b"\n")
        pipes.stdin.flush()
    line = pipes.stdout.readline()
    program.require_running()
    worst: float = json.loads(line)
    return worst


def _scrape(port: int) -> tuple[int, float]:
    """How many series there were, and in how many milliseconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    began = time.perf_counter()
    connection.request("GET", "/metrics")
    page = connection.getresponse().read()
    took = (time.perf_counter() - began) * 1e3
    connection.close()
    return sum(not line.startswith(b"#") for line in page.splitlines()), took


def main() -> None:
    """Be the gateway that `measure` starts."""
    parser = serving.arguments("A gateway with many series and a probe.")
    parser.add_argument("--servers", type=int, required=True)
    given: argparse.Namespace = parser.parse_args()
    asyncio.run(_serve(given.port, given.servers))


if __name__ == "__main__":
    main()
