"""`Traffic`: what hosts, servers and a gateway do in a story, event by event, with a seed.

Three servers: reports are slow and become tasks, searches are quick, and tickets ask their user. The
numbers are made up; how they hang together is as in a gateway: a call that becomes a task is polled,
waits for a turn, ends, is fetched and is removed.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import Final

from grafana.src.story.ledger import INSTANCE, Ledger

TTL: Final = 1800.0
_TURNS: Final = 24
_QUEUE: Final = 64
_POLL: Final = 4.0
_CHECKS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool. `a_second` are its calls at noon; `seconds` the median of how long it takes."""

    name: str
    a_second: float
    seconds: float
    spread: float
    as_task: float
    asks: float = 0.0
    fails: float = 0.015


TOOLS: Final[Mapping[str, tuple[Tool, ...]]] = {
    "reports": (
        Tool(name="generate_report", a_second=0.16, seconds=45, spread=0.7, as_task=0.93),
        Tool(name="summarise", a_second=0.12, seconds=18, spread=0.5, as_task=0.9),
    ),
    "search": (
        Tool(name="look_up", a_second=0.9, seconds=0.25, spread=0.6, as_task=0.0),
        Tool(name="crawl", a_second=0.15, seconds=12, spread=0.8, as_task=0.95),
    ),
    "tickets": (
        Tool(name="list_tickets", a_second=0.35, seconds=0.4, spread=0.5, as_task=0.0),
        Tool(name="open_ticket", a_second=0.08, seconds=6, spread=0.4, as_task=1.0, asks=0.6),
    ),
}
_REVISIONS: Final = {"2025-06-18": 0.15, "2025-11-25": 0.6, "2026-07-28": 0.25}


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A server that is down between two moments; times are seconds since 1970."""

    upstream: str
    begin: float
    end: float

    def covers(self, upstream: str, moment: float) -> bool:
        """Whether that server is down then."""
        return upstream == self.upstream and self.begin <= moment < self.end


@dataclass(slots=True, eq=False)
class _Task:
    upstream: str
    tool: Tool
    created: float
    polls: int = 0
    status: str = "working"


@dataclass(slots=True)
class _Server:
    running: set[_Task] = field(default_factory=set)
    waiting: deque[_Task] = field(default_factory=deque)
    plain: int = 0
    open_since: float | None = None
    failures: int = 0
    up: bool = True


class Traffic:
    """Plays from `begin` on, and counts in `ledger`. `day` is how busy it is at a moment, 1 at noon."""

    def __init__(self, begin: float, *, seed: int, incident: Incident | None, day: Callable[[float], float]) -> None:
        self.ledger = Ledger()
        self._now = begin
        self._begin = begin
        self._random = Random(seed)  # noqa: S311 (a story is no secret)
        self._incident = incident
        self._day = day
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._servers = {name: _Server() for name in TOOLS}
        self._stored = dict.fromkeys(("working", "input_required", "completed", "failed", "cancelled"), 0)
        self._lines = 120_000
        self._busy = 0.0
        self._hash = 187723572702975.0
        self._reloaded = begin
        for upstream, tools in TOOLS.items():
            for tool in tools:
                self._next_call(upstream, tool)
            self._in(0, partial(self._check, upstream))
        self._in(0, self._housekeep)
        self._zero()

    def pages(self, every: float, until: float) -> Iterator[Iterator[str]]:
        """A page for each moment of a scrape, to be read before the next is asked for."""
        moment = self._now
        while moment <= until:
            self._play(moment)
            yield self._page(moment)
            moment += every

    def reload(self, moment: float) -> None:
        """Another configuration is in force from that moment on."""

        def reload() -> None:
            self._hash += 1
            self._reloaded = moment
            self.ledger.count("taskgate_config_reloads_total", result="success")

        self._in(moment - self._now, reload)

    # --- time

    def _in(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._order), event))

    def _play(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self._now, _, event = heapq.heappop(self._events)
            event()
        self._now = until

    # --- calls

    def _next_call(self, upstream: str, tool: Tool) -> None:
        pace = tool.a_second * self._day(self._now)
        if self._incident and upstream == self._incident.upstream:
            # Users try again when the server is back.
            pace *= 1.9 if 0 <= self._now - self._incident.end < 240 else 1.0

        def call() -> None:
            self._call(upstream, tool)
            self._next_call(upstream, tool)

        self._in(self._random.expovariate(pace), call)

    def _call(self, upstream: str, tool: Tool) -> None:
        chance = self._random.random
        if chance() < 0.03:
            self._ask_for_list(upstream)
        if chance() < 0.004:
            self._disposed(upstream, tool, "rejected")
            self._decided("calls", "rejected")
            self._answered(upstream, "tools/call", self._short(), "429")
            return
        if chance() < tool.as_task:
            self._disposed(upstream, tool, "task")
            self._start(upstream, tool)
        else:
            self._disposed(upstream, tool, "inline" if tool.as_task == 0 and chance() < 0.7 else "direct")
            self._plain(upstream, tool)

    def _disposed(self, upstream: str, tool: Tool, disposition: str) -> None:
        self.ledger.count("taskgate_tool_calls_total", upstream=upstream, tool=tool.name, disposition=disposition)

    def _ask_for_list(self, upstream: str) -> None:
        took = self._lognormal(0.02, 0.5)
        if self._is_down(upstream):
            self._sent(upstream, "tools/list", 0.003, "unreachable")
            self._answered(upstream, "tools/list", 0.006, "-32603")
            return
        self._sent(upstream, "tools/list", took, "")
        self._answered(upstream, "tools/list", took + self._short(), "")

    def _plain(self, upstream: str, tool: Tool) -> None:
        if self._is_down(upstream):
            self._fail_at_once(upstream)
            self._answered(upstream, "tools/call", 0.006, "-32603")
            return
        server, took = self._servers[upstream], self._lognormal(tool.seconds, tool.spread)
        server.plain += 1

        def end() -> None:
            server.plain -= 1
            error = "-32603" if self._random.random() < 0.0004 else ""
            error = "tool_error" if not error and self._random.random() < tool.fails else error
            self._sent(upstream, "tools/call", took, "timeout" if error == "-32603" else error)
            self._answered(upstream, "tools/call", took + self._short(), error)

        self._in(took, end)

    # --- tasks

    def _start(self, upstream: str, tool: Tool) -> None:
        ledger, task, server = self.ledger, _Task(upstream, tool, self._now), self._servers[upstream]
        ledger.count("taskgate_tasks_started_total", upstream=upstream)
        ledger.observe("taskgate_task_ttl_seconds", TTL, upstream=upstream)
        if self._random.random() < 0.7:
            ledger.count("taskgate_ttl_adjustments_total", upstream=upstream, action="defaulted")
        self._audited("task.created")
        self._stored_in("insert")
        self._stored["working"] += 1
        self._answered(upstream, "tools/call", self._short() * 2, "")
        if self._is_down(upstream):
            self._fail_at_once(upstream)
            self._in(0.05, lambda: self._end(task, "failed", "unreachable"))
            return
        if len(server.running) >= _TURNS:
            server.waiting.append(task)
        else:
            self._dispatch(task)
        self._in(_POLL, lambda: self._poll(task))

    def _dispatch(self, task: _Task) -> None:
        waited = self._now - task.created + self._short() / 3
        self.ledger.observe("taskgate_task_queue_wait_seconds", waited, upstream=task.upstream)
        self._servers[task.upstream].running.add(task)
        took, begun = self._lognormal(task.tool.seconds, task.tool.spread), self._now
        if self._random.random() < task.tool.asks:
            self._in(took * 0.4, lambda: self._ask(task))
            took += 25
        if self._random.random() < 0.02:
            self._in(took * 0.5, lambda: self._cancel(task))

        def end() -> None:
            if task.status in ("working", "input_required"):
                error = "tool_error" if self._random.random() < task.tool.fails else ""
                error = "timeout" if not error and self._random.random() < 0.002 else error
                self._sent(task.upstream, "tools/call", self._now - begun, error)
                ended = "failed" if error == "timeout" else "completed"
                self._end(task, ended, error or "ok")

        self._in(took, end)

    def _ask(self, task: _Task) -> None:
        if task.status != "working":
            return
        self._move(task, "input_required")
        self._audited("task.input_requested")
        waited = self._lognormal(12, 0.5)

        def answer() -> None:
            if task.status == "input_required":
                self._move(task, "working")
                outcome = "answered" if self._random.random() < 0.95 else "declined"
                about = {"upstream": task.upstream, "kind": "elicitation", "outcome": outcome}
                self.ledger.count("taskgate_task_input_requests_total", **about)
                self.ledger.observe("taskgate_task_input_wait_seconds", waited, upstream=task.upstream)
                self._answered(task.upstream, "tasks/update", self._short(), "")

        self._in(waited, answer)

    def _cancel(self, task: _Task) -> None:
        ended = task.status not in ("working", "input_required")
        outcome = "already_terminal" if ended else "propagated"
        self.ledger.count("taskgate_task_cancel_requests_total", upstream=task.upstream, outcome=outcome)
        self._answered(task.upstream, "tasks/cancel", self._short(), "")
        if not ended:
            self._sent(task.upstream, "tools/call", self._now - task.created, "cancelled")
            self._end(task, "cancelled", "client")

    def _move(self, task: _Task, status: str) -> None:
        about = {"upstream": task.upstream, "from_status": task.status, "to_status": status}
        self.ledger.count("taskgate_task_transitions_total", **about)
        self._stored[task.status] -= 1
        self._stored[status] += 1
        self._stored_in("swap")
        self._audited("task.transition")
        task.status = status

    def _end(self, task: _Task, status: str, reason: str) -> None:
        ledger, upstream, server = self.ledger, task.upstream, self._servers[task.upstream]
        self._move(task, status)
        server.running.discard(task)
        if server.waiting and len(server.running) < _TURNS and not self._is_down(upstream):
            self._dispatch(server.waiting.popleft())
        ledger.count("taskgate_tasks_finished_total", upstream=upstream, status=status, reason=reason)
        ledger.observe("taskgate_task_duration_seconds", self._now - task.created, upstream=upstream, status=status)
        self._audited(f"task.{status}", "failure" if status == "failed" else "success")
        fetched = status != "cancelled" and self._random.random() < 0.97
        if status == "completed":
            size = self._lognormal(4000 if reason == "ok" else 300, 0.9)
            ledger.observe("taskgate_task_result_bytes", size, upstream=upstream)
        if fetched:
            self._in(self._random.uniform(0.2, _POLL), lambda: self._fetch(task))
        self._in(TTL - (self._now - task.created), lambda: self._purge(task, fetched=fetched))

    def _poll(self, task: _Task) -> None:
        if task.status not in ("working", "input_required"):
            return
        chance = self._random.random()
        result = "early" if chance < 0.01 else "changed" if chance < 0.14 else "unchanged"
        self._polled(task, result)
        self._in(self._random.uniform(0.9, 1.2) * _POLL, lambda: self._poll(task))

    def _fetch(self, task: _Task) -> None:
        self._polled(task, "terminal")
        about = {"upstream": task.upstream}
        self.ledger.observe("taskgate_task_polls_per_task", task.polls, **about)
        self.ledger.observe("taskgate_task_delivery_delay_seconds", self._random.uniform(0.2, _POLL), **about)
        self._audited("task.result_retrieved")

    def _polled(self, task: _Task, result: str) -> None:
        task.polls += 1
        self.ledger.count("taskgate_task_polls_total", upstream=task.upstream, result=result)
        self._decided("polls", "allowed")
        self._stored_in("load")
        self._answered(task.upstream, "tasks/get", self._short(), "")

    def _purge(self, task: _Task, *, fetched: bool) -> None:
        self._stored[task.status] -= 1
        self.ledger.count("taskgate_tasks_purged_total", status=task.status)
        if not fetched:
            about = {"upstream": task.upstream, "status": task.status}
            self.ledger.count("taskgate_tasks_undelivered_total", **about)
        self._audited("task.purged")

    # --- servers

    def _is_down(self, upstream: str) -> bool:
        return self._incident is not None and self._incident.covers(upstream, self._now)

    def _fail_at_once(self, upstream: str) -> None:
        """A call that did not reach its server; an open circuit does not even send it."""
        server = self._servers[upstream]
        server.failures += 1
        if server.open_since is None:
            self._sent(upstream, "tools/call", 0.003, "unreachable")
            self.ledger.count("taskgate_upstream_retries_total", upstream=upstream, reason="connect")
            if server.failures >= 5:
                server.open_since = self._now
                self._audited("upstream.circuit_opened", "failure")

    def _check(self, upstream: str) -> None:
        """A health check; a server that is down takes its calls with it."""
        server, down = self._servers[upstream], self._is_down(upstream)
        about = {"upstream": upstream, "result": "error" if down else "ok"}
        self.ledger.count("taskgate_upstream_health_checks_total", **about)
        if down:
            for task in [*server.running, *server.waiting]:
                self._sent(upstream, "tools/call", self._now - task.created, "closed")
                self._end(task, "failed", "closed")
            server.waiting.clear()
        elif not server.up:
            server.open_since, server.failures = None, 0
            self.ledger.count("taskgate_upstream_sessions_lost_total", 3, upstream=upstream)
        server.up = not down
        self._in(_CHECKS, lambda: self._check(upstream))

    # --- what each request leaves behind

    def _answered(self, upstream: str, method: str, took: float, error: str) -> None:
        ledger = self.ledger
        about = {"upstream": upstream, "mcp_method_name": method, "error_type": error}
        ledger.observe("mcp_server_operation_duration_seconds", took, **about)
        route = {"http_route": "mcp", "http_request_method": "POST", "http_response_status_code": "200"}
        ledger.observe("http_server_request_duration_seconds", took + 0.001, **route)
        [revision] = self._random.choices([*_REVISIONS], [*_REVISIONS.values()])
        ledger.count("taskgate_requests_by_protocol_total", mcp_protocol_version=revision)
        if method == "tools/call" and error != "429":
            self._decided("calls", "allowed")
        self._authenticated()
        self._audited("rpc.call" if method == "tools/call" else "rpc.request", "failure" if error else "success")
        self._busy += 0.0016

    def _authenticated(self) -> None:
        chance = self._random.random()
        if chance < 0.004:
            reason = "missing" if chance < 0.0025 else "expired"
            issuer = "_OTHER" if reason == "missing" else "corp"
            self.ledger.count("taskgate_auth_requests_total", issuer=issuer, result="rejected", reason=reason)
            self.ledger.count("taskgate_http_rejections_total", reason="unauthenticated")
            refused = {"http_route": "mcp", "http_request_method": "POST", "http_response_status_code": "401"}
            self.ledger.observe("http_server_request_duration_seconds", 0.002, **refused)
            self._audited("auth.rejected", "denied")
        hit = "hit" if self._random.random() < 0.97 else "miss"
        self.ledger.count("taskgate_token_cache_lookups_total", result=hit)
        self.ledger.count("taskgate_auth_requests_total", issuer="corp", result="accepted")

    def _sent(self, upstream: str, method: str, took: float, error: str) -> None:
        about = {"upstream": upstream, "mcp_method_name": method, "error_type": error}
        self.ledger.observe("mcp_client_operation_duration_seconds", took, **about)

    def _decided(self, policy: str, decision: str) -> None:
        about = {"policy": policy, "scope": "context", "decision": decision}
        self.ledger.count("taskgate_rate_limit_decisions_total", **about)

    def _audited(self, event: str, outcome: str = "success") -> None:
        self._lines += 1
        self.ledger.count("taskgate_audit_events_total", event=event, outcome=outcome)
        if self._lines % 4 == 0:
            self.ledger.observe("taskgate_audit_write_duration_seconds", self._lognormal(0.0004, 0.5), sink="file")

    def _stored_in(self, operation: str) -> None:
        about = {"backend": "sqlite", "operation": operation, "result": "ok"}
        median = 0.0009 if operation == "load" else 0.002
        self.ledger.observe("taskgate_store_operation_duration_seconds", self._lognormal(median, 0.5), **about)

    def _housekeep(self) -> None:
        for _ in range(60):
            self.ledger.observe("taskgate_event_loop_lag_seconds", self._lognormal(0.0012, 0.6))
        for operation in ("census", "check", "purge", "lapsed"):
            self._stored_in(operation)
        if self._random.random() < 0.05:
            self.ledger.count("taskgate_jwks_refreshes_total", issuer="corp", result="ok")
        if self._random.random() < 0.1:
            denied = {"upstream": "reports", "mcp_method_name": "tasks/get", "reason": "expired"}
            self.ledger.count("taskgate_task_access_denials_total", **denied)
        self._in(15, self._housekeep)

    # --- pages

    def _zero(self) -> None:
        """What a gateway shows with 0 from its start."""
        for reason in ("queue_full", "write_failed", "closed"):
            self.ledger.count("taskgate_audit_dropped_total", 0, sink="file", reason=reason)
        for kind in ("enumeration_suspected", "cross_context_access", "excessive_polling", "header_mismatch"):
            self.ledger.count("taskgate_security_events_total", 0, type=kind)
        for label in ("tool", "mcp_method_name", "error_type"):
            self.ledger.count("taskgate_metrics_label_overflows_total", 0, label=label)
        for fault in ("disk_full", "locked", "file_gone"):
            self.ledger.set("taskgate_store_fault", 0, backend="sqlite", fault=fault)
        for upstream in TOOLS:
            for phase in ("queued", "working", "input_required"):
                self.ledger.count("taskgate_task_expirations_total", 0, upstream=upstream, phase=phase)
            for outcome in ("failed", "retried"):
                self.ledger.count("taskgate_task_recoveries_total", 0, upstream=upstream, outcome=outcome)
            for reason in ("context_mismatch", "not_found", "expired"):
                denied = {"upstream": upstream, "mcp_method_name": "tasks/get", "reason": reason}
                self.ledger.count("taskgate_task_access_denials_total", 0, **denied)
            self.ledger.count("taskgate_queue_rejections_total", 0, upstream=upstream, reason="full")
            self.ledger.count("taskgate_task_late_answers_total", 0, upstream=upstream)
            self.ledger.count("taskgate_upstream_sessions_lost_total", 0, upstream=upstream)
            self.ledger.count("taskgate_upstream_retries_total", 0, upstream=upstream, reason="connect")
        self.ledger.count("taskgate_leases_lost_total", 0, kind="task")
        self.ledger.count("taskgate_concurrency_rejections_total", 0, policy="tasks", scope="context")
        self.ledger.count("taskgate_sessions_evicted_total", 0)

    def _page(self, moment: float) -> Iterator[str]:
        self._gauges(moment)
        yield from self.ledger.page(moment)
        wave = math.sin((moment - self._begin) / 900)
        standard = {
            "up": 1,
            "process_cpu_seconds_total": self._busy,
            "process_resident_memory_bytes": 9.4e7 + 2e6 * wave + 4e4 * sum(self._stored.values()),
            "process_open_fds": 64 + round(6 * wave),
            "process_max_fds": 65536,
            "process_start_time_seconds": self._begin - 5 * 86400,
            "scrape_duration_seconds": 0.021 + 0.002 * wave,
            "scrape_samples_scraped": 2143,
        }
        for name, value in standard.items():
            yield f"{name}{{{INSTANCE}}} {value:.6f} {moment:.3f}\n"
        for generation, collections in enumerate((self._busy * 9, self._busy, self._busy / 40)):
            labels = f'{INSTANCE},generation="{generation}"'
            yield f"python_gc_collections_total{{{labels}}} {collections:.0f} {moment:.3f}\n"

    def _gauges(self, moment: float) -> None:
        put, callers = self.ledger.set, 40 * self._day(moment)
        put("taskgate_build_info", 1, version="0.9.0", revision="4f1c2a7", python_version="3.12.7")
        put("taskgate_ready", 1)
        put("taskgate_draining", 0)
        put("taskgate_config_last_reload_successful", 1)
        put("taskgate_config_last_reload_success_timestamp_seconds", self._reloaded)
        put("taskgate_config_hash", self._hash)
        put("taskgate_active_contexts", round(callers + 2 * math.sin(moment / 400)))
        put("taskgate_saturated_contexts", 0)
        put("taskgate_penalized_contexts", 0)
        put("taskgate_rate_limit_waiting", 0)
        put("taskgate_jwks_keys", 2, issuer="corp")
        put("taskgate_jwks_last_success_timestamp_seconds", moment - moment % 300, issuer="corp")
        put("taskgate_store_up", 1, backend="sqlite")
        put("taskgate_store_size_bytes", 4e6 + 9e3 * sum(self._stored.values()), backend="sqlite")
        put("taskgate_store_size_limit_bytes", 2.0**30, backend="sqlite")
        put("taskgate_audit_queue_depth", self._random.randrange(4), sink="file")
        put("taskgate_audit_queue_limit", 10000, sink="file")
        put("taskgate_audit_chain_sequence", self._lines, sink="file")
        for status, number in self._stored.items():
            put("taskgate_store_tasks", number, status=status)
        unfinished = self._stored["working"] + self._stored["input_required"]
        put("taskgate_concurrency_in_use", unfinished, scope="global")
        put("taskgate_concurrency_limit", 1000, scope="global")
        for upstream, server in self._servers.items():
            in_use = len(server.running) + server.plain
            put("taskgate_tasks_running", len(server.running), upstream=upstream)
            # A gauge that is absent would seem to keep its value: a story marks no series as stale.
            oldest = min((task.created for task in (*server.running, *server.waiting)), default=math.nan)
            put("taskgate_task_oldest_age_seconds", moment - oldest, upstream=upstream)
            put("taskgate_upstream_requests_in_flight", in_use, upstream=upstream)
            put("taskgate_concurrency_in_use", in_use, scope="upstream", upstream=upstream)
            put("taskgate_concurrency_limit", _TURNS + 8, scope="upstream", upstream=upstream)
            put("taskgate_queue_depth", len(server.waiting), upstream=upstream)
            put("taskgate_queue_limit", _QUEUE, upstream=upstream)
            put("taskgate_upstream_up", float(server.up), upstream=upstream)
            for state in ("up", "refusing", "down", "held"):
                put(
                    "taskgate_upstream_state",
                    float(state == ("up" if server.up else "down")),
                    upstream=upstream,
                    state=state,
                )
            put("taskgate_upstream_circuit_open", float(server.open_since is not None), upstream=upstream)
            put("taskgate_poll_interval_seconds", _POLL, upstream=upstream)
        put("taskgate_streams", round(callers / 6), side="downstream", kind="get")
        put("taskgate_streams", sum(each.plain for each in self._servers.values()), side="downstream", kind="response")
        put("taskgate_streams", len(self._servers), side="upstream", kind="get")
        put("http_server_active_requests", round(callers / 6), http_route="mcp")

    def _short(self) -> float:
        return self._lognormal(0.005, 0.5)

    def _lognormal(self, median: float, spread: float) -> float:
        return median * math.exp(self._random.gauss(0, spread))
