"""What is measured: the loads, the programs each is put on, and the ratios that are asked for with their goals."""

from dataclasses import dataclass, field
from typing import Any

SSE_EVENTS = 20
_TTL = 3_600_000  # ms; longer than a benchmark runs, so that no expiry falls into it


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A ratio of one figure between two targets, or their difference if `absolute`.

    Its goal, if any, is `at_most`, or `at_least`.
    """

    figure: str
    of: str
    to: str
    at_most: float | None = None
    at_least: float | None = None
    absolute: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One load. `count` requests make a round; `per` is how many events one request stands for."""

    name: str
    part: str
    title: str
    targets: tuple[str, ...]
    connections: int
    count: int
    method: str
    params: dict[str, Any]
    marker: str
    times: int = 0
    rate: float = 0.0
    per: int = 1
    ratios: tuple[Ratio, ...]
    needs_held_tasks: bool = field(default=False)
    in_turn: bool = False
    """Every round sends other bodies, drawn from many that are given to it."""
    to_results: bool = False
    """Each request creates a task; a look at it and its result belong to the request."""

    @property
    def creates_tasks(self) -> bool:
        """Whether a request leaves work behind that its answer does not wait for."""
        return "task" in self.params


def _cpu(of: str, to: str, at_most: float | None = None) -> tuple[Ratio, Ratio]:
    return Ratio(figure="cpu", of=of, to=to, at_most=at_most), Ratio(figure="rate", of=of, to=to)


def call(tool: str, **arguments: object) -> dict[str, Any]:
    """The params of a plain call."""
    return {"name": tool, "arguments": arguments}


def task_call(tool: str, **arguments: object) -> dict[str, Any]:
    """The params of a call as a task."""
    return {**call(tool, **arguments), "task": {"ttl": _TTL}}


_PROXIES = ("direct", "bare", "taskgate", "off")
_OFF = Ratio(figure="cpu", of="off", to="bare")
_FOX = "the quick brown fox"
_ECHO = call("echo", text=_FOX)
_BARE_COST = Ratio(figure="cpu", of="bare", to="direct")


def _relayed(name: str, title: str, connections: int, count: int, **rest: Any) -> Scenario:
    usual = {"part": "relay", "targets": _PROXIES, "method": "tools/call", "params": _ECHO, "marker": _FOX}
    return Scenario(name=name, title=title, connections=connections, count=count, **{**usual, **rest})


SCENARIOS = (
    _relayed(
        "relay",
        "relayed `tools/call`, 64 connections",
        64,
        10_000,
        ratios=(*_cpu("taskgate", "bare", 0.8), _OFF, _BARE_COST),
    ),
    _relayed(
        "solo",
        "relayed `tools/call`, one caller",
        1,
        2_000,
        ratios=(
            Ratio(figure="p50", of="taskgate", to="bare", at_most=1.0),
            Ratio(figure="p50", of="bare", to="direct"),
        ),
    ),
    _relayed(
        "paced",
        "relayed `tools/call`, 1,000 a second",
        64,
        4_000,
        rate=1000.0,
        ratios=(
            Ratio(figure="p99", of="taskgate", to="bare", at_most=1.3),
            Ratio(figure="p99", of="bare", to="direct"),
        ),
    ),
    _relayed(
        "up64k",
        "64 KiB arguments, 16 connections",
        16,
        3_000,
        params=call("count", text="y" * 65_536),
        marker='"65536"',
        ratios=(*_cpu("taskgate", "bare", 1.0), _OFF, _BARE_COST),
    ),
    _relayed(
        "up1m",
        "1 MiB arguments, 8 connections",
        8,
        400,
        params=call("count", text="y" * 1_048_576),
        marker='"1048576"',
        ratios=(*_cpu("taskgate", "bare", 1.3), _OFF, _BARE_COST),
    ),
    _relayed(
        "down1m",
        "1 MiB result, 8 connections",
        8,
        400,
        params=call("big", bytes=1_048_576),
        marker='"text":"begin x',
        times=1,
        ratios=(*_cpu("taskgate", "bare", 1.0), _OFF, _BARE_COST),
    ),
    _relayed(
        "list",
        "`tools/list` of ten tools, 64 connections",
        64,
        6_000,
        method="tools/list",
        params={},
        marker='"name":"generate_report"',
        times=1,
        ratios=(*_cpu("taskgate", "bare", 0.9), _OFF, _BARE_COST),
    ),
    _relayed(
        "sse",
        f"one of {SSE_EVENTS} progress events of an event stream, 64 connections",
        64,
        512,
        params={**call("stream", events=SSE_EVENTS), "_meta": {"progressToken": "t"}},
        marker='"notifications/progress"',
        times=SSE_EVENTS,
        per=SSE_EVENTS,
        ratios=(Ratio(figure="cpu", of="taskgate", to="bare", at_most=1.15), _OFF, _BARE_COST),
    ),
    _relayed(
        "burst",
        f"the same, all {SSE_EVENTS} events at once",
        64,
        2_048,
        params={**call("stream", events=SSE_EVENTS, at_once=True), "_meta": {"progressToken": "t"}},
        marker='"notifications/progress"',
        times=SSE_EVENTS,
        per=SSE_EVENTS,
        ratios=(Ratio(figure="cpu", of="taskgate", to="bare", at_most=1.0), _OFF, _BARE_COST),
    ),
    Scenario(
        name="create",
        part="create",
        title="a task created, run and stored, 64 connections",
        targets=("least", "taskgate", "off"),
        connections=64,
        count=5_000,
        method="tools/call",
        params=task_call("echo", text="the quick brown fox"),
        marker='"taskId"',
        ratios=(*_cpu("taskgate", "least", 1.15), Ratio(figure="cpu", of="off", to="least")),
    ),
    Scenario(
        name="results",
        part="create",
        title="a task created, looked at once and its result waited for, 64 connections",
        targets=("least", "taskgate", "off"),
        connections=64,
        count=3_000,
        method="tools/call",
        params=task_call("echo", text=_FOX),
        marker=_FOX,
        ratios=(*_cpu("taskgate", "least", 1.3), Ratio(figure="cpu", of="off", to="least")),
        to_results=True,
    ),
    Scenario(
        name="get",
        part="get",
        title="`tasks/get` of a running task, 64 connections",
        targets=("answerer", "least", "taskgate", "off"),
        connections=64,
        count=10_000,
        method="tasks/get",
        params={},
        marker='"working"',
        ratios=(
            *_cpu("taskgate", "answerer", 1.5),
            Ratio(figure="cpu", of="off", to="answerer"),
            *_cpu("taskgate", "least"),
            *_cpu("least", "answerer"),
        ),
        needs_held_tasks=True,
    ),
    _relayed(
        "tokens",
        "relayed `tools/call`; `fresh` gets a token that it has not seen in each request, 64 connections",
        64,
        5_000,
        part="tokens",
        targets=("taskgate", "fresh"),
        ratios=(Ratio(figure="cpu", of="fresh", to="taskgate", at_most=150.0, absolute=True),),
    ),
)
FASTMCP = _relayed(
    "fastmcp",
    "relayed `tools/call`, also by FastMCP's proxy with one connected client, 64 connections",
    64,
    1_000,
    part="fastmcp",
    targets=("fastmcp", "taskgate"),
    ratios=_cpu("taskgate", "fastmcp", 0.06),
)
PARTS = ("relay", "create", "get", "tokens", "eras", "memory", "start")
LARGE = ("stored", "waiters", "lists", "fastmcp")
"""Parts that are measured only when they are asked for: two fill a large file, one takes 30,500 descriptors, and one an
environment that `make environments` makes."""
