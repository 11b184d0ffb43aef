"""What a page of a filtered `tasks/list` costs beside a `tasks/get`: one instance, one caller with many tasks.

The tasks are made through the instance itself, by calls that end at once, and some that do not end. Every page is full.
"""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import host
from bench.failures import BenchFailed
from bench.load_driver import Barrage, Body, Load, body
from bench.measure import SESSIONS, Bench, Outcome
from bench.scenarios import Ratio, Scenario, task_call
from bench.targets import Running, started

GOAL = 5.0
PAGE = 100
_GET = "tasks/get"
_PLACES = 200  # cursors that the pages in the midst of a list are asked for by
_UNENDED = 64


def _scenario(lists: Sequence[str]) -> Scenario:
    return Scenario(
        name="lists",
        part="lists",
        title=f"a page of {PAGE} of a filtered `tasks/list`, and `tasks/get`, 64 connections",
        targets=(_GET, *lists),
        connections=64,
        count=4_000,
        method="tasks/list",
        params={},
        marker='"taskId"',
        ratios=tuple(Ratio(figure="cpu", of=name, to=_GET, at_most=GOAL) for name in lists),
        in_turn=True,
    )


def measure(stub: Running, load: Load, folder: Path, *, many: int, rounds: int, scale: float) -> Outcome:
    """Make `many` tasks of one caller, then put the same count of looks and of lists on the instance, in turn."""
    place = folder / "lists"
    place.mkdir()
    with started("fresh", stub, place, sessions=SESSIONS) as running:
        middle = _fill(stub, load, running, many)
        bodies = _bodies(running, middle)
        bench = Bench(stub, load, dict.fromkeys(bodies, running))
        outcome = bench.measure(_scenario(list(bodies)[1:]), rounds=rounds, scale=scale, bodies=bodies)
        host.release(stub.port)
        return outcome


def _fill(stub: Running, load: Load, running: Running, many: int) -> str:
    """Make the tasks; a time when half of them were made."""
    host.create_many(running.port, running.sessions, task_call("hold", text=""), _UNENDED)
    first, middle = many // 2, ""
    for count in (first, many - first):
        before = host.counts(stub.port)["answered"]
        calls = [body("tools/call", task_call("echo", text="the quick brown fox"))]
        load.open(
            Barrage(port=running.port, connections=64, sessions=running.sessions, bodies=calls, marker='"taskId"')
        )
        load.run(count, 0.0)
        load.close()
        host.wait_until("every call answered", lambda: host.counts(stub.port)["answered"] >= before + count)  # noqa: B023
        running.program.wait_until_quiet()
        middle = middle or datetime.now(UTC).isoformat()
    return middle


def _bodies(running: Running, middle: str) -> dict[str, list[Body]]:
    """What is asked, by what it is shown as: looks at tasks first."""
    ended: dict[str, Any] = {"filter": {"status": ["completed"]}}
    asked = {
        "completed ones": [ended],
        "completed ones, made since a time, oldest first": [
            {"filter": {**ended["filter"], "createdAfter": middle, "orderBy": "createdAt", "order": "asc"}}
        ],
        "three states, changed before a time": [
            {"filter": {"status": ["completed", "failed", "cancelled"], "lastUpdatedBefore": middle}}
        ],
        "completed ones, by cursors": [{**ended, "cursor": cursor} for cursor in _cursors(running, ended)],
    }
    for params in itertools.chain(*asked.values()):
        _require_a_full_page(running, params)
    tasks = host.ask(running.port, running.sessions[0], "tasks/list", ended)["tasks"]
    looks = [body(_GET, {"taskId": task["taskId"]}) for task in tasks]
    lists = {name: [body("tasks/list", each) for each in params] for name, params in asked.items()}
    return {_GET: looks, **lists}


def _cursors(running: Running, params: dict[str, Any]) -> list[str]:
    found: list[str] = []
    while len(found) < _PLACES:
        after = {"cursor": found[-1]} if found else {}
        page = host.ask(running.port, running.sessions[0], "tasks/list", params | after)
        if "nextCursor" not in page:
            # What comes after the last cursor may be no full page.
            return found[:-1]
        found.append(page["nextCursor"])
    return found


def _require_a_full_page(running: Running, params: dict[str, Any]) -> None:
    page = host.ask(running.port, running.sessions[0], "tasks/list", params)
    if len(page["tasks"]) != PAGE:
        raise BenchFailed(f"a page of {len(page['tasks'])} tasks instead of {PAGE}")
