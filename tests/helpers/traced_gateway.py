"""A whole gateway whose spans go to a real collector, and a look at them once all have arrived."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from helpers.otlp_collector import OtlpCollector
from helpers.whole_gateway import WholeGateway, configuration, running

KEPT = {"enabled": True, "sample_ratio": 1}
LOOKS = {"upgrade": [{"tool": "*", "mode": "sync", "hints": {"readOnlyHint": True}}, {"tool": "*", "mode": "auto"}]}
"""A rule for which the server's catalogue is read: until then no tool is known to be listed."""


@asynccontextmanager
async def traced(
    collector: OtlpCollector,
    servers: Mapping[str, str],
    *,
    tracing: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    **sections: Any,
) -> AsyncIterator[WholeGateway]:
    """A gateway for the length of a block, after which the collector has all of its spans.

    Unless `tasks` are given, tools are known from the first call on.
    """
    told = {**KEPT, "endpoint": collector.url, **(tracing or {})}
    config = configuration(servers, folder=folder, tracing=told, **{"tasks": LOOKS, **sections})
    async with running(config, data_directory=folder) as gateway:
        yield gateway
