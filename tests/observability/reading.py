"""Reads what the scenario left behind: series over the time that it took, and lines of the audit log.

What must not live here: what is expected of them.
"""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from grafana.src import preview
from grafana.src.reading import expanded

from helpers.prometheus_server import PrometheusServer
from observability.drive import Run

REQUESTS: Final = ("rpc.call", "rpc.request", "rpc.rejected")
WINDOW: Final = "4s"
"""What rates are taken over: eight scrapes."""

_STEP: Final = 0.5

Series = dict[str, Any]
Line = dict[str, Any]


class Archive:
    """`async with Archive(run) as archive:` — a Prometheus on the data of the scenario's, with nothing to scrape."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._server = PrometheusServer(run.folder, rules=[])

    @property
    def in_preview(self) -> preview.Prometheus:
        """What previews are drawn from: all of the time in which the gateway served."""
        run = self._run
        seconds = run.served_until - run.began
        return preview.Prometheus(url=self._server.url, end=run.served_until, seconds=seconds, window=WINDOW)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.__aexit__(kind, error, trace)

    async def found(self, expression: str) -> list[Series]:
        """The series that an expression has over the whole scenario, but those that are never a number."""
        times = {"start": f"{self._run.began:.3f}", "end": f"{self._run.ended:.3f}", "step": f"{_STEP}"}
        answer = await self._server.get("/api/v1/query_range", query=_plain(expression), **times)
        return [one for one in answer["result"] if any(value != "NaN" for _, value in one["values"])]

    async def values(self, series: str, label: str) -> list[str]:
        """The values that a label has in some series."""
        found: list[str] = await self._server.get(f"/api/v1/label/{label}/values", **{"match[]": _plain(series)})
        return found


def _plain(expression: str) -> str:
    return expanded(expression, window=WINDOW, span="10s") if "$" in expression else expression


@cache
def lines_of(path: Path) -> tuple[Line, ...]:
    """The lines of an audit log."""
    return tuple(json.loads(line) for line in path.read_bytes().splitlines())


def audit_of(run: Run) -> tuple[Line, ...]:
    """The lines of the sink that has them all, of whoever was alone and then of each replica."""
    return tuple(line for path in files_of(run, "file") for line in lines_of(path))


def files_of(run: Run, sink: str) -> tuple[Path, ...]:
    """The files of a sink, those of replicas last."""
    return run.sinks[sink] + tuple(left.sinks[sink] for left in run.replicas if sink in left.sinks)


def of(lines: Iterable[Line], *events: str) -> list[Line]:
    """Those of some events."""
    return [line for line in lines if line["event"] in events]
