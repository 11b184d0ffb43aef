"""What it costs to decide whether a call may go on: every check of one call, in this process, without a socket.

The command line: `python -m bench.admission [--contexts N] [--rounds N] [--json FILE]`. Prints Markdown: microseconds
of CPU a call, medians over rounds, by step, with rules that do not match in the way and with many contexts known.
Measured with the metrics of the product. Ends with 0 whether the goal is met or not.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from taskgate.admission.coalescing import CoalesceKey
from taskgate.admission.concurrency import Bulkhead
from taskgate.admission.polls import PollLimiter
from taskgate.admission.rates import QuotaSubjects, RateLimiter
from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.context import AuthContext, Identity
from taskgate.clock import SystemClock, SystemEntropy
from taskgate.config.model import GatewayConfig, admission_rules, bulkhead_settings
from taskgate.domain.record import OwnerKey, TaskRecord, TaskStatus, ToolCall
from taskgate.domain.versions import Peer, Revision
from taskgate.protocol.host_requests import CallTool
from taskgate.stores.rates import MemoryRateStore
from taskgate.streams.exchange import Admission, Exchange, HttpMethod
from taskgate.telemetry.metrics.prometheus import PrometheusRecorder
from taskgate.telemetry.metrics.settings import MetricsConfig
from taskgate.telemetry.ring import EventRing

GOAL: Final = 30.0
"""Microseconds of CPU for all checks of a call together."""
STRANGERS: Final = (0, 10, 1000)
"""How many rules of each kind there are that do not match."""
ISSUER: Final = "https://idp.example.com/"
_CALLS: Final = 5_000
_TOOL: Final = "generate_report"


class Caller(NamedTuple):
    """One host: who it is, where it comes from, and a task of its own."""

    context: AuthContext
    exchange: Exchange
    task: TaskRecord


class _Exchange(NamedTuple):
    address: str
    head: Admission


class _Hurrying(SystemClock):
    """A stopwatch that goes a minute further whenever it is looked at, so that nobody ever asks too often."""

    def __init__(self) -> None:
        self._elapsed = 0.0

    def elapsed(self) -> float:
        self._elapsed += 60.0
        return self._elapsed


def configuration(strangers: int) -> GatewayConfig:
    """The usual limits, rules for one tool, and `strangers` of every kind of rule that no call meets."""
    rates = [
        {"name": "ip", "scope": "ip", "rate": "1000/s", "burst": 2000, "before_auth": True},
        {"name": "auth_failures", "scope": "ip", "rate": "1/s", "burst": 20, "event": "auth_failure"},
        {"name": "calls", "scope": "context", "rate": "5/s", "burst": 20, "methods": ["tools/call"]},
        {"name": "polls", "scope": "context", "rate": "20/s", "burst": 60, "methods": ["tasks/*"]},
        {"name": "rest", "scope": "context", "rate": "20/s", "burst": 60, "methods": ["*"]},
        *({"name": f"r{n}", "scope": "context", "rate": "1/s", "tool": f"other_{n}_*"} for n in range(strangers)),
    ]
    rules = [*({"tool": f"other_{n}_*", "mode": "always"} for n in range(strangers)), {"tool": "*", "mode": "auto"}]
    overrides = [{"match": {"tenant": f"tenant {n}"}, "rate": {"calls": "50/s"}} for n in range(strangers)]
    return GatewayConfig.model_validate(
        {
            "version": 1,
            "auth": {"mode": "required", "issuers": {"corp": {"issuer": ISSUER, "claims": {"tenant": "org"}}}},
            "server": {"listen": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "store": {"backend": "memory"},
            "upstreams": {"reports": {"path": "/mcp", "url": "http://127.0.0.1:1/mcp", "concurrency": 64}},
            "tasks": {"upgrade": rules},
            "limits": {"rate": rates, "overrides": overrides},
        }
    )


def callers(count: int) -> list[Caller]:
    """So many callers, of a hundred tenants, each from an address of its own."""
    now = datetime.now(UTC)
    found = []
    for number in range(count):
        identity = Identity(
            issuer_name="corp",
            issuer=ISSUER,
            subject=f"user {number}",
            client_id="host",
            tenant=f"org {number % 100}",
            scopes=frozenset({"reports.run"}),
            expires_at=now + timedelta(hours=1),
            claims={"sub": f"user {number}", "jti": str(number)},
        )
        context = AuthContext(key=f"context {number}", identity=identity)
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        task = TaskRecord(
            id=f"{number:032}",
            owner=OwnerKey(f"context {number}", "reports"),
            call=ToolCall(
                tool=_TOOL,
                peer=Peer(revision=Revision.R2026_07_28, capabilities={}, info={}),
                host_session=None,
                progress_token=None,
                params="{}",
            ),
            status=TaskStatus.WORKING,
            created_at=now,
            updated_at=now,
            ttl=timedelta(hours=1),
            poll_interval=timedelta(seconds=2),
        )
        found.append(
            Caller(
                context, cast("Exchange", _Exchange(address, Admission(HttpMethod.POST, "/mcp", caller=context))), task
            )
        )
    return found


class Checks:
    """The parts that decide, put together as the gateway has them; one method for each step of a call."""

    def __init__(self, strangers: int) -> None:
        config = configuration(strangers)
        self.live = RuntimeConfig(admission_rules(config))
        self.clock = clock = _Hurrying()
        names = [policy.name for policy in self.live.current.rates.policies]
        self.event_sink = EventRing(clock)
        configured = MetricsConfig(backend="memory", upstreams={"reports": "reports"}, policies=names)
        PrometheusRecorder(configured, self.event_sink, clock=clock)
        self.subjects = QuotaSubjects(self.live)
        self.rate_limiter = RateLimiter(
            live=self.live, subjects=self.subjects, store=MemoryRateStore(), event_sink=self.event_sink, clock=clock
        )
        self.bulkhead = Bulkhead("reports", bulkhead_settings(config, "reports"), event_sink=self.event_sink)
        self.polls = PollLimiter(
            live=self.live,
            utilization=lambda _: self.bulkhead.utilization,
            event_sink=self.event_sink,
            clock=clock,
            entropy=SystemEntropy(),
        )
        params = cast("Any", None)
        self.call = CallTool("id", _TOOL, params, None, None, wants_task=False, ttl=None)

    async def rates(self, caller: Caller) -> None:
        """Before it is known who asks, and after."""
        limiter, exchange = self.rate_limiter, caller.exchange
        now = self.clock.elapsed()
        if not limiter.admits_connection(exchange, "reports", now):
            await limiter.on_connection(exchange, "reports")
        if not limiter.admits(caller.context, exchange, "reports", "tools/call", _TOOL, now):
            await limiter.on_request(caller.context, exchange, "reports", "tools/call", _TOOL)

    def promotion(self, caller: Caller) -> None:
        """Which rule is for the tool, and what time to live it grants."""
        self.live.current.policy.decide("reports", _TOOL).clamp_ttl(None)

    def caps(self, caller: Caller) -> None:
        """What a task of the call would be held against."""
        quota = self.subjects.of(caller.context)
        overrides = quota.override.caps if quota.override is not None else {}
        self.live.current.caps.applicable(overrides, None, quota.tenant is not None)

    def turn(self, caller: Caller) -> None:
        """A slot at the server, and back."""
        self.bulkhead.acquire(caller.context.key).release()

    def joins(self, caller: Caller) -> None:
        """Whether the call may be one that was made before."""
        decision = self.live.current.policy.decide("reports", _TOOL)
        assert not CoalesceKey(caller.context.owner("reports"), self.call, decision.join_retries).is_coalescable

    def poll(self, caller: Caller) -> None:
        """Whether a look at its task is too early, and when to look again."""
        self.polls.on_poll(caller.task)

    async def all(self, caller: Caller) -> None:
        """Every step."""
        await self.rates(caller)
        self.promotion(caller)
        self.caps(caller)
        self.turn(caller)
        self.joins(caller)
        self.poll(caller)


STEPS: Final = ("rates", "promotion", "caps", "turn", "joins", "poll", "all")


class Cost(NamedTuple):
    """Microseconds of CPU of one step: the median, the least and the most over rounds."""

    step: str
    strangers: int
    known: int
    median: float
    least: float
    most: float


async def _spent(check: Callable[[Caller], Awaitable[None] | None], who: Iterator[Caller]) -> float:
    """Microseconds for one, less what the loop around it takes."""
    begun = time.process_time_ns()
    for _ in range(_CALLS):
        next(who)
    idle, begun = time.process_time_ns() - begun, time.process_time_ns()
    for _ in range(_CALLS):
        waiting = check(next(who))
        if waiting is not None:
            await waiting
    return (time.process_time_ns() - begun - idle) / 1_000 / _CALLS


async def measure(strangers: int, hosts: list[Caller], rounds: int) -> list[Cost]:
    """Each step, and all of them, by all hosts in turn, each of which was there before."""
    checks = Checks(strangers)
    for each in hosts:
        await checks.all(each)
    costs = []
    for step in STEPS:
        who = cycle(hosts)
        figures = [await _spent(getattr(checks, step), who) for _ in range(rounds)]
        costs.append(Cost(step, strangers, len(hosts), statistics.median(figures), min(figures), max(figures)))
    return costs


def markdown(costs: list[Cost]) -> str:
    """A table with a row for each step, and the verdict."""
    cases = list(dict.fromkeys((cost.strangers, cost.known) for cost in costs))
    heads = [f"{strangers:,} others, {known:,} contexts" for strangers, known in cases]
    lines = ["| µs a call | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(cases)]
    for step in STEPS:
        row = [next(c for c in costs if (c.step, c.strangers, c.known) == (step, *case)) for case in cases]
        lines.append(f"| {step} | " + " | ".join(f"{c.median:.1f} ({c.least:.1f}-{c.most:.1f})" for c in row) + " |")
    worst = max(cost.median for cost in costs if cost.step == "all")
    verdict = "met" if worst <= GOAL else "missed"
    return "\n".join([*lines, "", f"All checks together: {worst:.1f} µs at the most; at most {GOAL:.0f}: {verdict}."])


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.admission", description=__doc__)
    parser.add_argument("--contexts", type=int, default=100_000, help="how many are known in the larger case")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    asked = parser.parse_args()
    many = callers(asked.contexts)
    costs = [
        cost
        for strangers in STRANGERS
        for hosts in (many[:1], many)
        for cost in asyncio.run(measure(strangers, hosts, asked.rounds))
    ]
    print(markdown(costs))
    if asked.json is not None:
        asked.json.write_text(json.dumps([cost._asdict() for cost in costs], indent=2))


if __name__ == "__main__":
    main()
