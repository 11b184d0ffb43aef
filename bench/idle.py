"""What programs that have nothing to do cost: CPU of the gateway and of the nursery, with them and without.

The command line: `python -m bench.idle [--programs N] [--seconds F] [--rounds N] [--json FILE]`. One gateway; in each
round nobody does anything for a while, first without a program and then with all of them, each held by a host's
session. Prints Markdown. Ends with 0 whether the goal is met or not. Linux only.
"""

import argparse
import http.client
import json
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from bench import host, report
from bench.failures import BenchFailed
from bench.serving import raise_descriptor_limit
from bench.targets import Running, started, started_stub

GOAL: Final = 1.0
"""Milliseconds of CPU a second, all programs together: a thousandth of a processor is not told from none."""
_SERVER: Final = """
import json, sys
tools = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "idle", "version": "1"}}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = tools if message["method"] == "initialize" else {"tools": []}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
# Shared programs are spread over before any is given twice, but for some that are left for hosts that declare something
# else: so each session of one host has its own where twice as many may run.
_STDIO: Final = "transport: stdio, command: {command}, sessions: shared, processes: {most}, pool: {{idle_timeout: 1s}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """One figure a round: milliseconds of CPU a second, and KiB that a program adds to the gateway's memory."""

    programs: int
    without: list[float] = field(default_factory=list)
    gateway: list[float] = field(default_factory=list)
    nursery: list[float] = field(default_factory=list)
    kib: list[float] = field(default_factory=list)

    @property
    def added(self) -> list[float]:
        """What the programs cost the gateway."""
        return [of - without for of, without in zip(self.gateway, self.without, strict=True)]


def measure(programs: int, seconds: float, rounds: int, folder: Path) -> Idle:
    """So many rounds of so many seconds with that many programs, and as many without. BenchFailed."""
    command = json.dumps([sys.executable, "-I", "-S", "-c", _SERVER])
    parts = {"server": _STDIO.format(command=command, most=2 * programs)}
    found = Idle(programs=programs)
    with (
        started_stub(get_stream=False) as stub,
        started("open", stub, folder, sessions=1, revision='"2025-11-25"', parts=parts) as gateway,
    ):
        _leave(gateway, list(gateway.sessions))
        for _ in range(rounds):
            _round(gateway, found, seconds)
    return found


def _round(gateway: Running, found: Idle, seconds: float) -> None:
    pid = gateway.program.popen.pid
    host.wait_until("the programs end", lambda: not _programs(pid))
    gateway.program.wait_until_quiet()
    found.without.append(_spent([pid], seconds)[0])
    before = gateway.program.resident()
    sessions = [host.open_session(gateway.port) for _ in range(found.programs)]
    for each in sessions:
        host.ask(gateway.port, each, "tools/list", {})
    host.wait_until("each session has a program", lambda: len(_programs(pid)) == found.programs)
    gateway.program.wait_until_quiet()
    [nursery] = _children(pid)
    spent = _spent([pid, nursery], seconds)
    if len(_programs(pid)) != found.programs:
        raise BenchFailed("programs ended while nobody did anything")
    found.gateway.append(spent[0])
    found.nursery.append(spent[1])
    found.kib.append((gateway.program.resident() - before) / 1024 / found.programs)
    _leave(gateway, sessions)


def _leave(gateway: Running, sessions: list[host.Heads]) -> None:
    """End the sessions, so that their programs end after their second."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=host.WAIT_BOUND)
    for each in sessions:
        connection.request("DELETE", host.PATH, headers=each)
        connection.getresponse().read()
    connection.close()


def _spent(pids: list[int], seconds: float) -> list[float]:
    """Milliseconds of CPU that each used a second, while nothing was asked of it."""
    before = [_clock(pid) for pid in pids]
    time.sleep(seconds)
    return [(_clock(pid) - used) * 1e3 / seconds for pid, used in zip(pids, before, strict=True)]


def _clock(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)


def _programs(pid: int) -> list[int]:
    return [each for nursery in _children(pid) for each in _children(nursery)]


def _children(pid: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if int((place / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]) == pid:
                found.append(int(place.name))
        except OSError:
            continue
    return found


def told(found: Idle) -> str:
    """The table."""
    rows = {
        "the gateway, without a program": found.without,
        f"the gateway, with {found.programs}": found.gateway,
        f"the nursery, with {found.programs}": found.nursery,
    }
    lines = ["| CPU, ms a second | median | of all rounds |", "|---|---|---|"]
    for name, values in rows.items():
        each = ", ".join(f"{value:.2f}" for value in values)
        lines.append(f"| {name} | {statistics.median(values):.2f} | {each} |")
    added = statistics.median(found.added)
    verdict = "met" if added <= GOAL else "MISSED"
    lines += [
        "",
        f"{found.programs} idle programs add {added:.2f} ms of CPU a second to the gateway (goal: at most {GOAL:g}: "
        f"{verdict}), and {statistics.median(found.kib):.0f} KiB of memory each.",
    ]
    return "\n".join(lines)


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.idle", description="what idle programs cost")
    parser.add_argument("--programs", type=int, default=200, metavar="N", help="how many")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="F", help="of doing nothing, each time")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="with and without")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round's figures there")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    raise_descriptor_limit()
    print(report.machine_line(), flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="taskgate-bench-") as folder:
            found = measure(given.programs, given.seconds, given.rounds, Path(folder))
    except BenchFailed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    print(told(found))
    if given.json:
        given.json.write_text(json.dumps(asdict(found), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
