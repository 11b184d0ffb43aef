"""OBSERVE=1: a real Prometheus scrapes the example's taskgate, with all alert rules, and says what it saw."""

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import prometheus
from addresses import Address
from processes import Child, ChildEnded, running

START_WITHIN = 30.0
SEEN_WITHIN = 30.0
QUESTIONS = (
    ("Tasks made, by server", "sum by (upstream) (taskgate_tasks_started_total)"),
    ("How they ended", "sum by (status, reason) (taskgate_tasks_finished_total) > 0"),
    ("Calls of tools, and what became of them", "sum by (tool, disposition) (taskgate_tool_calls_total) > 0"),
    (
        "Seconds that 95 % of the requests took at most",
        "histogram_quantile(0.95, sum by (mcp_method_name, le) (mcp_server_operation_duration_seconds_bucket)) >= 0",
    ),
    ("Events in the audit log", "sum by (event) (taskgate_audit_events_total) > 0"),
    ("Alerts that fire", 'ALERTS{alertstate="firing"}'),
)


class NotObserved(Exception):
    """Prometheus did not see what it should have; the text says why, for a person to read."""


@dataclass(frozen=True, slots=True)
class Observer:
    """A Prometheus that scrapes so many gateways; `address` is HOST:PORT."""

    child: Child
    address: str
    gateways: int = 1

    async def show(self) -> None:
        """Waits until it has seen what is so now, and prints its answers. Raises NotObserved."""
        await self._see_what_is_so_now()
        print("\nWhat Prometheus saw:")
        for words, expression in QUESTIONS:
            print(f"  {words}:\n    {expression}")
            for sample in await prometheus.query(self.address, expression):
                labels = ", ".join(f"{name}={text}" for name, text in sorted(sample.labels.items()) if text)
                print(f"      {sample.value:8.6g}  {labels}")
        sys.stdout.flush()

    async def _see_what_is_so_now(self) -> None:
        now = time.time()
        try:
            async with asyncio.timeout(SEEN_WITHIN):
                seen = f'count(timestamp(up{{job="taskgate"}}) > {now:.3f} and up == 1) == {self.gateways}'
                await prometheus.wait_for(self.address, seen)
        except TimeoutError as error:
            raise NotObserved(f"Prometheus scraped nothing within {SEEN_WITHIN:.0f} s") from error
        except (OSError, prometheus.PrometheusRefused) as error:
            raise NotObserved(f"Prometheus does not answer: {error}") from error


def check_that_prometheus_is_here() -> None:
    """Raises NotObserved where it is not, before anything is started."""
    try:
        prometheus.program()
    except prometheus.PrometheusMissing as missing:
        raise NotObserved(f"OBSERVE=1 needs Prometheus, but {missing}") from missing


@asynccontextmanager
async def observing(admins: Sequence[Address], folder: Path) -> AsyncIterator[Observer]:
    """A Prometheus that scrapes these addresses every second for the length of the block. Raises NotObserved.

    What an earlier one left in the folder goes.
    """
    storage = folder / "prometheus"
    shutil.rmtree(storage, ignore_errors=True)
    config = folder / "prometheus.yml"
    config.write_text(prometheus.configuration(*map(str, admins)), encoding="utf-8")
    async with running(prometheus.command(config, storage), log=folder / "prometheus.log") as child:
        try:
            async with asyncio.timeout(START_WITHIN):
                address = (await child.said(prometheus.LISTENS))[1].decode()
                await child.said(rb"Server is ready")
        except (TimeoutError, ChildEnded) as error:
            raise NotObserved(f"Prometheus did not start within {START_WITHIN:.0f} s") from error
        yield Observer(child, address, len(admins))


def where_to_look(observer: Observer, folder: str) -> str:
    """The lines that a person needs to go on from there; `folder` is where all that is written goes."""
    return f"""\
  Prometheus     http://{observer.address}/graph, alerts at http://{observer.address}/alerts
  for Grafana    a data source of the type Prometheus at that address, and the dashboards in grafana/dashboards
  the audit log  {folder}/data{"" if observer.gateways == 1 else "-of-gateway-1"}/audit.jsonl
"""
