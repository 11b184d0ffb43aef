"""What a call costs between hosts and servers of the two eras, and a look at a task in either dialect: all in one run.

Two gateways before the same stub: one takes it for a server of the legacy era, the other for one of the modern
era. The same calls go through all four pairs of host and server.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import host
from bench.host import Heads
from bench.load_driver import Body, Load, body
from bench.measure import SESSIONS, Bench, Outcome
from bench.scenarios import Ratio, Scenario, call, task_call
from bench.targets import Running, started

MODERN_REVISION = "2026-07-28"
FOX = "the quick brown fox"
_PROTOCOL = "io.modelcontextprotocol"
_TASKS: dict[str, Any] = {"extensions": {f"{_PROTOCOL}/tasks": {}}}
_LEGACY_ERA, _MODERN_ERA = "legacy era on both sides", "modern era on both sides"
_FORTH, _BACK = "modern host, server of the legacy era", "host of the legacy era, modern server"
_WITH_TASKS = "modern host with tasks, server of the legacy era"
_OLD_LOOK, _NEW_LOOK = "`tasks/get` of 2025-11-25", "`tasks/get` of the extension"

RELAY = Scenario(
    name="eras",
    part="eras",
    title="relayed `tools/call` between the eras, 64 connections",
    targets=(_LEGACY_ERA, _MODERN_ERA, _FORTH, _BACK, _WITH_TASKS),
    connections=64,
    count=6_000,
    method="tools/call",
    params=call("echo", text=FOX),
    marker=FOX,
    ratios=(
        Ratio(figure="cpu", of=_MODERN_ERA, to=_LEGACY_ERA, at_most=1.15),
        Ratio(figure="cpu", of=_FORTH, to=_LEGACY_ERA, at_most=2.0),
        Ratio(figure="cpu", of=_BACK, to=_LEGACY_ERA, at_most=2.0),
        Ratio(figure="cpu", of=_WITH_TASKS, to=_LEGACY_ERA, at_most=2.0),
    ),
)
LOOKS = Scenario(
    name="looks",
    part="eras",
    title="`tasks/get` of a running task in either dialect, 64 connections",
    targets=(_OLD_LOOK, _NEW_LOOK),
    connections=64,
    count=6_000,
    method="tasks/get",
    params={},
    marker='"working"',
    ratios=(Ratio(figure="cpu", of=_NEW_LOOK, to=_OLD_LOOK, at_most=1.0),),
)


def measure(stub: Running, load: Load, folder: Path, *, rounds: int, scale: float) -> list[Outcome]:
    """Put the same calls on every pair in turn, then the same looks on both dialects."""
    old_place, new_place = folder / "legacy-era", folder / "modern-era"
    old_place.mkdir()
    new_place.mkdir()
    with (
        started("open", stub, old_place, sessions=SESSIONS) as old,
        started("open", stub, new_place, sessions=SESSIONS, revision=MODERN_REVISION) as new,
    ):
        calls = _bench(stub, load, old, new).measure(RELAY, rounds=rounds, scale=scale, bodies=_calls())
        tasks = [host.create(old.port, heads, task_call("hold", text="")) for heads in old.sessions]
        running = {_OLD_LOOK: old, _NEW_LOOK: replace(old, sessions=(_heads("tasks/get"),))}
        looks = {
            _OLD_LOOK: [body("tasks/get", {"taskId": task}) for task in tasks],
            _NEW_LOOK: [body("tasks/get", {"taskId": task, **_meta(_TASKS)}) for task in tasks],
        }
        outcome = Bench(stub, load, running).measure(LOOKS, rounds=rounds, scale=scale, bodies=looks)
        host.release(stub.port)
        return [calls, outcome]


def _bench(stub: Running, load: Load, old: Running, new: Running) -> Bench:
    heads = (_heads("tools/call", "echo"),)
    running = {
        _LEGACY_ERA: old,
        _MODERN_ERA: replace(new, sessions=heads),
        _FORTH: replace(old, sessions=heads),
        _BACK: new,
        _WITH_TASKS: replace(old, sessions=heads),
    }
    return Bench(stub, load, running)


def _calls() -> Mapping[str, list[Body]]:
    old = [body(RELAY.method, RELAY.params)]
    new = [body(RELAY.method, {**RELAY.params, **_meta({})})]
    with_tasks = [body(RELAY.method, {**RELAY.params, **_meta(_TASKS)})]
    return {_LEGACY_ERA: old, _MODERN_ERA: new, _FORTH: new, _BACK: old, _WITH_TASKS: with_tasks}


def _heads(method: str, name: str | None = None) -> Heads:
    named = {} if name is None else {"Mcp-Name": name}
    return {"MCP-Protocol-Version": MODERN_REVISION, "Mcp-Method": method, **named}


def _meta(capabilities: dict[str, Any]) -> dict[str, Any]:
    said = {
        f"{_PROTOCOL}/protocolVersion": MODERN_REVISION,
        f"{_PROTOCOL}/clientCapabilities": capabilities,
        f"{_PROTOCOL}/clientInfo": {"name": "taskgate-bench", "version": "1"},
    }
    return {"_meta": said}
