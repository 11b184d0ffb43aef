"""A server of metrics that no gateway ever had: every family of the catalogue, with numbers that move at each scrape.

For what reads metrics: an expression that finds nothing here asks for something that is not in the catalogue.

    async with MadeUpMetrics() as exporter:
        ... exporter.target ...

Of a label that has many values a few stand for all of them. What is bad is rare, and flags say that all is well.
"""

import asyncio
import math
import time
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final, Self
from zlib import crc32

from helpers.waiting import bounded
from taskgate.telemetry.metrics.catalogue import FAMILIES, Family, FamilyKind

_AT_MOST: Final = 4
_RELOADED_AFTER: Final = 10
"""So many scrapes, and then the configuration is another one."""

_NAMED: Final = {
    "version": ["1.4.0"],
    "revision": ["3f2a91c"],
    "python_version": ["3.12.7"],
    "upstream": ["reports", "search"],
    "issuer": ["corp", "_OTHER"],
    "policy": ["calls", "polls", "heavy"],
    "tool": ["generate_report", "look_up", "summarise", "_OTHER"],
    "backend": ["sqlite"],
    "sink": ["file", "stdout"],
    "gen_ai_tool_name": [""],
    "tenant": [""],
}
"""The values of labels that only a running gateway knows."""

_CHOSEN: Final = {
    "event": ["rpc.call", "rpc.request", "task.created", "task.completed", "task.access_denied"],
    "http_response_status_code": ["200", "202", "401", "404"],
    "mcp_method_name": ["initialize", "tools/call", "tools/list", "tasks/get"],
    "mcp_protocol_version": ["2025-06-18", "2025-11-25", "2026-07-28"],
    "error_type": ["", "tool_error", "-32603", "429"],
}
"""Those of labels of which the first few would not do."""

_FAILED: Final = ("tool_error", "-32603", "429", "401", "404", "error", "failed", "timeout", "expired", "cancelled")
_REFUSED: Final = ("rejected", "shadow", "full", "denied", "declined", "limited", "early", "invalid", "needs_restart")
_STRANGE: Final = (
    "stale",
    "superseded",
    "initialize",
    "miss",
    "2024-11-05",
    "2025-03-26",
    "task.access_denied",
    "heavy",
)
_RARE: Final = frozenset((*_FAILED, *_REFUSED, *_STRANGE))
_FIXED: Final = {
    "taskgate_draining": 0.0,
    "taskgate_upstream_circuit_open": 0.0,
    "taskgate_poll_interval_seconds": 2.0,
    "taskgate_store_size_limit_bytes": 4.0 * 2**30,
    "taskgate_store_size_bytes": 3.1e7,
    "taskgate_queue_limit": 256.0,
    "taskgate_audit_queue_limit": 10000.0,
    "taskgate_concurrency_limit": 32.0,
    "taskgate_saturated_contexts": 1.0,
    "taskgate_penalized_contexts": 0.0,
    "taskgate_rate_limit_waiting": 2.0,
}
_FLAGS: Final = ("_up", "_ready", "_successful", "_info")
_NEVER: Final = ("taskgate_audit_dropped", "taskgate_security", "taskgate_metrics_label", "taskgate_config_reloads")
_SELDOM: Final = tuple(
    f"taskgate_{name}"
    for name in (
        "task_expirations",
        "task_recoveries",
        "task_late",
        "task_access",
        "task_cancel",
        "tasks_undelivered",
        "shadow",
        "queue_rejections",
        "concurrency_rejections",
        "sessions_evicted",
        "upstream_retries",
        "upstream_sessions",
        "http_rejections",
        "access_refusals",
        "jwks",
    )
)
_HAPPENS: Final = {
    "taskgate_task_transitions_total": {
        ("working", "completed"),
        ("working", "input_required"),
        ("input_required", "working"),
        ("working", "failed"),
    },
    "taskgate_tasks_finished_total": {
        ("completed", "ok"),
        ("completed", "tool_error"),
        ("failed", "unreachable"),
        ("cancelled", "client"),
    },
    "taskgate_auth_requests_total": {("accepted", ""), ("rejected", "missing"), ("rejected", "malformed")},
}
"""What the last two labels of a family may be together, where not everything goes with everything."""


class MadeUpMetrics:
    """Serves them for the length of a block."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._scrapes = 0
        self._began = time.time()
        self.target = ""
        """HOST:PORT, as Prometheus wants it."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.target = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        async with bounded():
            await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self._scrapes += 1
        body = "".join(line + "\n" for line in self._lines()).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {len(body)}\r\n"
        writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    def _lines(self) -> Iterator[str]:
        for family in FAMILIES:
            yield f"# TYPE {family.name} {family.kind}"
            for values in product(*(_values(label.name, label.values) for label in family.labels)):
                if values[-2:] not in _HAPPENS.get(family.name, {values[-2:]}):
                    continue
                named = [f'{label.name}="{value}"' for label, value in zip(family.labels, values, strict=True)]
                yield from self._series(family, named, values)
        yield f"process_cpu_seconds_total {self._scrapes * 0.06:.3f}"
        yield f"process_resident_memory_bytes {6.1e7 + 2e6 * math.sin(self._scrapes / 9):.0f}"
        yield f"process_open_fds {30 + self._scrapes % 7}"
        yield "process_max_fds 1024"
        yield f"process_start_time_seconds {self._began:.3f}"
        yield from (
            f'python_gc_collections_total{{generation="{each}"}} {self._scrapes // 10**each}' for each in range(3)
        )

    def _series(self, family: Family, named: list[str], values: tuple[str, ...]) -> Iterator[str]:
        match family.kind:
            case FamilyKind.COUNTER:
                yield _line(family.name, named, f"{self._count(family.name, values):.0f}")
            case FamilyKind.GAUGE:
                yield _line(family.name, named, f"{self._gauge(family.name, values):.3f}")
            case FamilyKind.HISTOGRAM:
                yield from self._histogram(family, named, values)

    def _count(self, name: str, values: tuple[str, ...]) -> float:
        """How many there were: some at each scrape, fewer of what is rare, and more at times than at others."""
        if name.startswith(_NEVER):
            return 0.0
        seldom = sum(value in _RARE for value in values) + name.startswith(_SELDOM)
        each = (2 + crc32("".join(values[:1]).encode()) % 7) / 30**seldom
        return each * (self._scrapes + 4 * math.sin(self._scrapes / 15))

    def _gauge(self, name: str, values: tuple[str, ...]) -> float:
        if name == "taskgate_config_hash":
            return 187723572702975.0 + (self._scrapes > _RELOADED_AFTER)
        if name in _FIXED:
            return _FIXED[name]
        if name.endswith(_FLAGS):
            return 1.0
        if name.endswith("_timestamp_seconds"):
            return self._began - 30
        if name.endswith("_sequence"):
            return 4800.0 + 3 * self._scrapes
        size = 2 + crc32(repr((name, values)).encode()) % 6
        return max(0.0, round(size * (1 + math.sin(self._scrapes / 12 + size))))

    def _histogram(self, family: Family, named: list[str], values: tuple[str, ...]) -> Iterator[str]:
        """Most of it about the third bucket."""
        total = self._count(family.name, values)
        middle = 2 + crc32(repr((family.name, values)).encode()) % 2
        for place, bound in enumerate(family.buckets):
            part = 1 / (1 + math.exp(1.4 * (middle - place)))
            yield _line(f"{family.name}_bucket", [*named, f'le="{bound}"'], f"{math.floor(total * part)}")
        yield _line(f"{family.name}_bucket", [*named, 'le="+Inf"'], f"{math.floor(total)}")
        yield _line(f"{family.name}_sum", named, f"{total * family.buckets[middle]:.4f}")
        yield _line(f"{family.name}_count", named, f"{math.floor(total)}")


def _line(name: str, named: list[str], value: str) -> str:
    return f"{name}{{{','.join(named)}}} {value}"


def _values(name: str, known: Mapping[Any, str] | None) -> list[str]:
    if known is None:
        return _NAMED[name]
    return _CHOSEN.get(name) or list(known.values())[:_AT_MOST]
