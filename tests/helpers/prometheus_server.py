"""A real Prometheus for the length of a block, and promtool.

Both are programs of the machine (Debian: the package `prometheus`), of which no service is needed: each block has a
process of its own, on a free port and in a folder of the test. A test that needs them asks `require_prometheus` first.
"""

import asyncio
import json
import subprocess
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from example import prometheus
from example.processes import running
from example.prometheus import Sample

from helpers.waiting import bounded
from provider.install import nothing_may_be_missing

_CHECKED_WITHIN = 150.0


def require_prometheus() -> None:
    """Skips the test where the programs are not there; a failure where nothing may be missing."""
    try:
        for name in ("prometheus", "promtool"):
            prometheus.program(name)
    except prometheus.PrometheusMissing as reason:
        if nothing_may_be_missing():
            pytest.fail(f"nothing may be missing here, but {reason}", pytrace=False)
        pytest.skip(str(reason))


def promtool(*arguments: str | Path, stdin: str = "") -> tuple[int, str]:
    """What promtool makes of these arguments: its exit status, and all that it says."""
    run = subprocess.run(
        [prometheus.program("promtool"), *arguments],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_CHECKED_WITHIN,
    )
    return run.returncode, run.stdout


class PrometheusServer:
    """`async with PrometheusServer(folder, target) as server:` — at the end of the block its process is gone.

    It scrapes the targets (HOST:PORT), all under the job `taskgate`, as often as `interval` says, and evaluates
    `rules` as often: files, or patterns of files; by default all that the project has. Its data goes into the folder.
    """

    def __init__(
        self, folder: Path, *targets: str, interval: str = "500ms", rules: Sequence[str | Path] | None = None
    ) -> None:
        self._folder = folder
        self._interval = interval
        files = [prometheus.SAMPLE.parent / "alerts" / "*.yml"] if rules is None else rules
        self._configuration = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "rule_files": [str(file) for file in files],
            "scrape_configs": [{"job_name": "taskgate", "static_configs": [{"targets": list(targets)}]}],
        }
        self._stack = AsyncExitStack()
        self.address = ""
        """HOST:PORT, once it runs."""

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://{self.address}"

    async def __aenter__(self) -> Self:
        config = self._folder / "prometheus.yml"
        # JSON is YAML.
        config.write_text(json.dumps(self._configuration), encoding="utf-8")
        command = prometheus.command(config, self._folder / "prometheus")
        async with AsyncExitStack() as stack:
            child = await stack.enter_async_context(running(command, log=self._folder / "prometheus.log"))
            async with bounded():
                self.address = (await child.said(prometheus.LISTENS))[1].decode()
                await child.said(rb"Server is ready")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def get(self, path: str, **parameters: str) -> Any:
        """What its API has under `data`; raises PrometheusRefused with its reason."""
        async with bounded():
            return await prometheus.get(self.address, path, **parameters)

    async def query(self, expression: str) -> list[Sample]:
        """The values of an expression now."""
        async with bounded():
            return await prometheus.query(self.address, expression)

    async def query_range(self, expression: str, *, seconds: float = 30, step: float = 1) -> list[dict[str, Any]]:
        """The series of an expression over the last seconds: `metric` and `values` of each."""
        [now] = await self.query("time()")
        times = {"start": f"{now.value - seconds:.3f}", "end": f"{now.value:.3f}", "step": f"{step}"}
        series: list[dict[str, Any]] = (await self.get("/api/v1/query_range", query=expression, **times))["result"]
        return series

    async def until(self, expression: str) -> list[Sample]:
        """Waits until the expression has a value, and returns its values."""
        async with bounded():
            return await prometheus.wait_for(self.address, expression)

    async def has_seen_all(self) -> None:
        """Waits until every target was scraped once more, so that it knows what is so now."""
        [now] = await self.query("time()")
        targets = self._configuration["scrape_configs"][0]["static_configs"][0]["targets"]
        await self.until(f"count(timestamp(up) > {now.value:.3f} and up == 1) == {len(targets)}")

    async def wrong_rules(self) -> list[str]:
        """The rules that it could not evaluate, or has not yet."""
        groups = (await self.get("/api/v1/rules"))["groups"]
        return [rule["name"] for group in groups for rule in group["rules"] if rule["health"] != "ok"]

    async def firing(self) -> dict[str, list[dict[str, str]]]:
        """The alerts that fire, by name, each with the labels that it fires with."""
        alerts: dict[str, list[dict[str, str]]] = {}
        for alert in (await self.get("/api/v1/alerts"))["alerts"]:
            if alert["state"] == "firing":
                alerts.setdefault(alert["labels"]["alertname"], []).append(alert["labels"])
        return alerts

    async def fires(self, expected: Collection[str]) -> dict[str, list[dict[str, str]]]:
        """Waits until these alerts fire and no others, and returns them; AssertionError when that does not come."""
        firing: dict[str, list[dict[str, str]]] = {}
        try:
            async with bounded():
                while (firing := await self.firing()).keys() != set(expected):
                    await asyncio.sleep(prometheus.LOOK_AGAIN_AFTER)
        except TimeoutError:
            raise AssertionError(f"what fires is {sorted(firing)}, and not {sorted(expected)}") from None
        return firing
