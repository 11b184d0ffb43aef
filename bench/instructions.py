"""How many instructions one request costs the gateway, counted by valgrind (callgrind): `make instructions`.

    python -m bench.instructions [--tree CHECKOUT ...]

Each request is sent alone, over one connection that is kept, after some that are not counted. What the kernel does is
not in the counts. They do not depend on what else runs; two runs of the same code differ by some 1 %. With `--tree`,
the same is counted in other checkouts, which stand in columns of their own.
"""

import argparse
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench import host, targets
from bench.failures import BenchFailed
from bench.processes import Program, ended, free_port
from bench.scenarios import SSE_EVENTS, call, task_call

WARM: Final = 40
COUNTED: Final = 100
READY_BOUND: Final = 300.0  # seconds; nothing is fast under valgrind
_RATES: Final = '[{name: calls, scope: context, methods: ["*"], rate: "100000/s", burst: 100000}]'
_MODERN: Final = "2026-07-28"
_OWN: Final = "io.modelcontextprotocol/"


class Counter:
    """A gateway that runs under valgrind; `count` tells what a function makes it do."""

    def __init__(self, program: Program, folder: Path, port: int) -> None:
        self._program = program
        self._folder = folder
        self._dumps = 0
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=READY_BOUND)

    def control(self, *order: str) -> None:
        """Give an order to callgrind."""
        command = ["callgrind_control", *order, str(self._program.popen.pid)]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if told.returncode or "Error" in told.stdout + told.stderr:
            raise BenchFailed(f"{' '.join(command)}: {told.stdout}{told.stderr}")

    def count(self, act: Callable[[], None]) -> int:
        """Instructions for each of several times that something is done."""
        for _ in range(WARM):
            act()
        self._program.wait_until_quiet(2)
        self.control("--zero")
        for _ in range(COUNTED):
            act()
        self._program.wait_until_quiet(2)
        self._dumps += 1
        self.control("--dump")
        return self._newest_total() // COUNTED

    def _newest_total(self) -> int:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            files = sorted(self._folder.glob("callgrind.out.*.*"), key=lambda file: int(file.suffix[1:]))
            if len(files) >= self._dumps:
                for line in files[-1].read_text(errors="replace").splitlines():
                    if line.startswith(("totals:", "summary:")):
                        return int(line.split()[1])
            time.sleep(0.1)
        raise BenchFailed("callgrind wrote no totals")

    def post(self, message: dict[str, Any], heads: dict[str, str]) -> bytes:
        """Send one message, and read its answer to the end."""
        given = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **heads}
        self.connection.request("POST", host.PATH, json.dumps(message).encode(), given)
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise BenchFailed(f"status {answer.status}: {content[:300]!r}")
        return content


@contextmanager
def started(stub: targets.Running, folder: Path, tree: Path | None) -> Iterator[Counter]:
    """A gateway under valgrind that answers."""
    place = targets.Place(
        port=free_port(),
        stub_port=stub.port,
        folder=folder,
        revision='"2025-11-25"',
        tree=tree,
        parts={"rate": _RATES},
    )
    command = targets.command_of_taskgate(place)
    valgrind = [
        "valgrind",
        "--tool=callgrind",
        "--instr-atstart=no",
        f"--callgrind-out-file={folder}/callgrind.out.%p",
        sys.executable,
        "-m",
        "taskgate",
    ]
    environment = {**place.environment, "PYTHONHASHSEED": "0"}
    with ended(Program("taskgate", [*valgrind, *command], environment=environment)) as program:
        until = time.monotonic() + READY_BOUND
        while True:
            program.require_running()
            try:
                host.open_session(place.port)
                break
            except (OSError, http.client.HTTPException, BenchFailed):
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
        counter = Counter(program, folder, place.port)
        counter.control("--instr=on")
        yield counter


def measure(stub: targets.Running, folder: Path, tree: Path | None) -> dict[str, int]:
    """Instructions of each kind of request."""
    with started(stub, folder, tree) as counter:
        port = counter.connection.port
        session = host.open_session(port)
        counts: dict[str, int] = {}

        def ask(method: str, params: dict[str, Any]) -> bytes:
            return counter.post({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}, session)

        def ask_modern(method: str, name: str, params: dict[str, Any]) -> bytes:
            meta = {
                f"{_OWN}protocolVersion": _MODERN,
                f"{_OWN}clientInfo": {"name": "bench", "version": "1"},
                f"{_OWN}clientCapabilities": {"extensions": {f"{_OWN}tasks": {}}},
            }
            message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": meta}}
            return counter.post(message, {"MCP-Protocol-Version": _MODERN, "Mcp-Method": method, "Mcp-Name": name})

        def create() -> None:
            task = json.loads(ask("tools/call", task_call("echo", text="hello")))["result"]["task"]["taskId"]
            ask("tasks/result", {"taskId": task})

        echo = call("echo", text="hello")
        counts["plain call, legacy host"] = counter.count(lambda: ask("tools/call", echo) and None)
        counts["plain call, modern host"] = counter.count(lambda: ask_modern("tools/call", "echo", echo) and None)
        held = host.create(port, session, task_call("hold"))
        counts["`tasks/get`, legacy host"] = counter.count(lambda: ask("tasks/get", {"taskId": held}) and None)
        counts["`tasks/get`, modern host"] = counter.count(
            lambda: ask_modern("tasks/get", held, {"taskId": held}) and None
        )
        counts["a task created, run, stored, and its result fetched"] = counter.count(create)
        events = {**call("stream", events=SSE_EVENTS), "_meta": {"progressToken": "t"}}
        counts[f"a stream of {SSE_EVENTS} events and its answer"] = counter.count(
            lambda: ask("tools/call", events) and None
        )
        host.release(stub.port)
        return counts


def main() -> None:
    """Count, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, action="append", default=[], help="another checkout to count in")
    given = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not here (Debian: apt-get install --no-install-recommends valgrind)")
    trees: list[Path | None] = [*given.tree, None]
    columns = []
    for tree in trees:
        with tempfile.TemporaryDirectory() as folder, targets.started_stub(get_stream=False) as stub:
            columns.append(measure(stub, Path(folder), tree))
    names = [("this" if tree is None else os.fspath(tree)) for tree in trees]
    print(f"| instructions of one request, in thousands | {' | '.join(names)} |")
    print(f"|---|{'--:|' * len(names)}")
    for kind in columns[0]:
        print(f"| {kind} | {' | '.join(f'{column[kind] / 1000:,.0f}' for column in columns)} |")


if __name__ == "__main__":
    main()
