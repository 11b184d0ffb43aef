"""How long an operator waits for the first page of a list among many tasks, over SQLite and over a Valkey.

The command line: `python -m bench.operators [--tasks N] [--running N] [--rounds N] [--json FILE]`. The stores are
filled by their own code with tasks of a thousand callers. Then each list is asked for in turn, one request at a time,
over one connection of a client beside the gateway. Prints Markdown. Ends with 0 whether the goal is met or not.
"""

import argparse
import contextlib
import http.client
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench import host, report, stock, stored
from bench.failures import BenchFailed
from bench.scenarios import task_call
from bench.serving import raise_descriptor_limit
from bench.shared import key_file
from bench.targets import DATABASE, MOUNT, Running, started, started_stub
from bench.valkey import started_valkey

GOAL: Final = 200.0
"""Milliseconds until the first page has come: the median of the rounds."""
SQLITE, VALKEY = "sqlite", "valkey"
LISTS: Final = {
    "all": "",
    "running": "status=working",
    "running, newest first": "status=working&sort=-created",
    "running of one upstream, by last change": f"status=working&upstream={MOUNT}&sort=updated",
    "completed": "status=completed",
    "of a usual upstream": f"upstream={MOUNT}",
    "of a rare upstream": f"upstream={stock.RARE_MOUNT}",
    "of one caller of a thousand": "caller=c_caller-7",
    "of the older half": "older_than={age:.0f}",
    "of the newer half": "younger_than={age:.0f}",
    "that no task matches": "tool=none",
}
"""The queries, by what they list; `age` is the seconds since half of the tasks were made. A page has at most 50."""
_TOKEN: Final = "token-of-an-operator-0123"


@contextlib.contextmanager
def _filled(name: str, stub: Running, folder: Path, tasks: int) -> Iterator[tuple[Running, float]]:
    """A gateway over a store with so many tasks, and when half of them had been made."""
    place = folder / name
    place.mkdir()
    token = place / "operator.token"
    token.touch(mode=0o600)
    token.write_text(_TOKEN)
    parts = {
        "tokens": f', token_file: "{token}"',
        "auth": f'{{mode: none, context: {{key_file: "{key_file(place, "context")}"}}}}',
    }
    more = f'audit: {{hmac_key_file: "{key_file(place, "audit")}"}}\n'
    with contextlib.ExitStack() as stack:
        to = ("--database", str(place / DATABASE))
        if name == VALKEY:
            valkey = stack.enter_context(started_valkey(place, {"appendonly": "no"}))
            parts["store"], to = valkey.section, ("--valkey", str(valkey.port))
        began = time.monotonic()
        stored.fill(tasks, *to, "--mixed")
        ended = time.monotonic()
        print(f"{tasks:,} tasks in {name} after {ended - began:.0f} s\n", flush=True)
        yield stack.enter_context(started("open", stub, place, sessions=1, more=more, parts=parts)), (began + ended) / 2


def measure(
    stub: Running, folder: Path, *, tasks: int, unended: int, rounds: int
) -> dict[str, dict[str, tuple[list[float], str]]]:
    """By store and list the milliseconds of each round, and how many tasks the page has. BenchFailed."""
    found: dict[str, dict[str, tuple[list[float], str]]] = {}
    for name in (SQLITE, VALKEY):
        with _filled(name, stub, folder, tasks) as (gateway, middle):
            host.create_many(gateway.port, gateway.sessions, task_call("hold", text=""), unended)
            gateway.program.wait_until_quiet()
            client = http.client.HTTPConnection("127.0.0.1", gateway.admin_port, timeout=host.WAIT_BOUND)
            found[name] = {}
            for _ in range(rounds):
                for title, query in LISTS.items():
                    milliseconds, page = _asked(client, query.format(age=time.monotonic() - middle))
                    times, _ = found[name].setdefault(title, ([], ""))
                    times.append(milliseconds)
                    shown = f"{len(page['items'])}{'' if page['next'] is None else ' and more'}"
                    found[name][title] = (times, shown)
            client.close()
            host.release(stub.port)
    return found


def _asked(client: http.client.HTTPConnection, query: str) -> tuple[float, dict[str, Any]]:
    began = time.perf_counter()
    client.request("GET", f"/api/v1/tasks?{query}", headers={"Authorization": f"Bearer {_TOKEN}"})
    response = client.getresponse()
    body = response.read()
    milliseconds = (time.perf_counter() - began) * 1e3
    if response.status != 200:
        raise BenchFailed(f"status {response.status} for {query}: {body[:200]!r}")
    page: dict[str, Any] = json.loads(body)
    return milliseconds, page


def table(found: dict[str, dict[str, tuple[list[float], str]]]) -> str:
    """The times of each list and store: their median and range, and how many tasks the page has."""
    lines = [f"| first page, ms (goal: ≤ {GOAL:g}) | {' | | '.join(found)} | |", f"|---|{'--:|--:|' * len(found)}"]
    for title in LISTS:
        cells = []
        for of_store in found.values():
            times, shown = of_store[title]
            middle = statistics.median(times)
            missed = "" if middle <= GOAL else ", missed"
            cells += [f"{middle:.1f} ({min(times):.1f}-{max(times):.1f}){missed}", shown]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.operators", description="first pages of lists of tasks")
    parser.add_argument("--tasks", type=int, default=1_000_000, metavar="N", help="how many are stored")
    parser.add_argument("--running", type=int, default=1_000, metavar="N", help="how many run besides")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="how often each list is asked for")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round's figures there")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    raise_descriptor_limit()
    print(report.machine_line(), flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="taskgate-bench-") as folder, started_stub(get_stream=False) as stub:
            found = measure(stub, Path(folder), tasks=given.tasks, unended=given.running, rounds=given.rounds)
    except BenchFailed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    print(table(found))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
