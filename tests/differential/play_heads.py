"""A program: plays the connections of `heads` to a gateway of whichever `taskgate` it imports, and writes down what
came back.

`python play_heads.py FOLDER SEED COUNT`: each connection is a line of `FOLDER/answers`, with the bytes that came back
and how it ended; `FOLDER/metrics` and `FOLDER/audit.jsonl` are as in `play`.
"""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from differential.heads import connections, sentinel  # noqa: E402
from helpers.gateway.configuration import configuration  # noqa: E402
from helpers.gateway.gateway import Environment, Gateway, serve  # noqa: E402
from helpers.manual_clock import ManualClock, SeededEntropy  # noqa: E402
from helpers.server import ScriptedServer  # noqa: E402
from helpers.waiting import bounded  # noqa: E402

QUIET_TURNS = 60
"""Turns of the loop without a byte, after which nothing more comes: host, gateway and server share the loop."""
ROOMY = {"name": "requests", "scope": "context", "methods": ["*"], "rate": "1000000/s", "burst": 1000000}
NAME = "gate.example"
SERVER = {"max_header": "4KiB", "max_body": "64KiB", "allowed_hosts": [NAME, "127.0.0.1"]}
_DATE = re.compile(rb"(?<=\r\nDate: )[^\r]+")


class Collector(asyncio.Protocol):
    """What comes back on one connection, and its end."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.end = "open"

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> None:
        self.end = "eof"

    def connection_lost(self, exc: Exception | None) -> None:
        if self.end == "open":
            self.end = "reset" if exc else "eof"


async def quiet(collector: Collector) -> None:
    """Wait until no more comes."""
    came, turns = -1, 0
    while turns < QUIET_TURNS:
        await asyncio.sleep(0)
        seen = len(collector.received) + 10**9 * (collector.end != "open")
        came, turns = (came, turns + 1) if seen == came else (seen, 0)


async def talk(gateway: Gateway, pieces: list[bytes], last: bytes) -> list[Any]:
    """Send the pieces of one connection, and a usual request if it is still open; return what came back."""
    loop = asyncio.get_running_loop()
    async with bounded():
        transport, collector = await loop.create_connection(Collector, *gateway.address)
        log: list[Any] = []
        for piece in [*pieces, last]:
            if collector.end != "open":
                break
            transport.write(piece)
            await quiet(collector)
            log.append([_DATE.sub(b"", bytes(collector.received)).decode("latin-1"), collector.end])
            collector.received.clear()
        transport.abort()
        for _ in range(QUIET_TURNS):
            await asyncio.sleep(0)
    return log


async def play(folder: Path, seed: int, count: int) -> None:
    """Play all of it."""
    folder.mkdir(parents=True, exist_ok=True)
    async with ScriptedServer() as server:
        upstreams = {"old": {"url": server.url, "path": "/old/mcp", "protocol_version": "2025-11-25"}}
        audit = {"sinks": [{"name": "file", "type": "file", "path": str(folder / "audit.jsonl")}]}
        config = configuration(
            {}, folder=folder, upstreams=upstreams, limits={"rate": [ROOMY]}, audit=audit, server=SERVER
        )
        environment = Environment(clock=ManualClock(), entropy=SeededEntropy(seed))
        async with serve(config, environment, data_directory=folder) as gateway:
            host = await gateway.greeted("2025-06-18", "old")
            assert host.session is not None
            last = sentinel(NAME, host.session)
            with (folder / "answers").open("w") as answers:
                for pieces in connections(seed, count, NAME, host.session):
                    came = await talk(gateway, pieces, last)
                    shown = [piece.decode("latin-1") for piece in pieces]
                    answers.write(json.dumps([shown, came]) + "\n")
            await gateway.shows("taskgate_audit_queue_depth", 0)
            page = await gateway.metrics()
    (folder / "metrics").write_text(page.replace(server.origin, "old"))


if __name__ == "__main__":
    asyncio.run(play(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
