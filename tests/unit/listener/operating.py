"""An operators' listener that is open, for the length of a test."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import orjson
import pytest

from helpers.emitting_metrics import EmittingMetrics
from helpers.host.raw import RawAnswer, raw_host, request_head
from helpers.waiting import bounded
from taskgate.clock import SystemEntropy
from taskgate.listener.operations import BOUNDS, OperatorsListener
from taskgate.listener.tls import TlsSettings
from taskgate.operators.access import Operator, OperatorAccess, Role
from taskgate.operators.api import OperatorsApi
from taskgate.operators.console.page import ConsolePage
from taskgate.operators.routes import Route
from taskgate.telemetry.events import Event
from taskgate.telemetry.metrics.settings import MetricsConfig

TOKEN = "operators-token-0123456789"
PAGE = b"<!doctype html>"
CONFIGURED = MetricsConfig(backend="memory", upstreams={"reports": "reports"})
SERVERS = {"reports": {"up": False, "circuit": "open", "in_use": 1, "limit": 32, "queued": 0}}


@dataclass
class Operated:
    """An operators' listener that is open, and what it is told of the gateway."""

    checks: dict[str, bool] = field(default_factory=lambda: {"started": True, "store": True})
    fault: Exception | None = None
    holds: asyncio.Event | None = None
    servers: dict[str, Any] = field(default_factory=lambda: SERVERS)
    details: dict[str, Any] = field(default_factory=dict)
    asked: int = 0
    reloaded: dict[str, Any] | None = field(default_factory=lambda: {"result": "success"})
    reloads: int = 0
    ends: int = 0
    elapsed: float = 0.0
    api_closed: int = 0
    can_end: bool = True

    def __post_init__(self) -> None:
        self.metrics = EmittingMetrics(CONFIGURED)
        self.noted: list[Event] = []
        self.access = OperatorAccess(lambda: self.elapsed)
        self.listener = OperatorsListener(
            page=lambda: PAGE,
            access=self.access,
            metrics=self.metrics,
            ready=self._ready,
            details=lambda: {"upstreams": self.servers, **self.details},
            reload=self._reload,
            event_sink=self,
            end=self._end if self.can_end else None,
        )
        self.address = ("", 0)

    async def ask(self, path: str, method: str = "GET", **headers: str) -> RawAnswer:
        async with raw_host(self.address) as host:
            return await host.ask(request_head(method, path, Host="localhost", **headers))

    def serve_api(self, *routes: Route) -> None:
        """Serve the API of operators with these routes alone."""
        api = OperatorsApi(self.access, routes, close=self._close_api)
        self.listener.serve(api, ConsolePage(self.access, SystemEntropy()))

    def emit(self, event: Event) -> None:
        """See Audit."""
        self.noted.append(event)

    async def _ready(self) -> Mapping[str, bool]:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        if self.holds is not None:
            await self.holds.wait()
        return self.checks

    async def _close_api(self) -> None:
        self.api_closed += 1

    def _end(self) -> None:
        self.ends += 1

    async def _reload(self) -> Mapping[str, Any] | None:
        self.reloads += 1
        return self.reloaded


@asynccontextmanager
async def operating(
    operated: Operated | None = None, tls: TlsSettings | None = None, **limits: timedelta
) -> AsyncIterator[Operated]:
    """One that knows the token, with these limits of `BOUNDS`, and with TLS if that is given."""
    operated = operated or Operated()
    operated.access.replace({TOKEN.encode(): Operator("token_file", Role.OPERATOR)})
    operated.address = await operated.listener.start("127.0.0.1", 0, replace(BOUNDS, **limits), tls)
    try:
        yield operated
    finally:
        async with bounded():
            await operated.listener.close()


@pytest.fixture
async def operated() -> AsyncIterator[Operated]:
    """One with the usual limits."""
    async with operating() as operated:
        yield operated


def told(answer: RawAnswer) -> object:
    """The document of an answer, whose headers are as they always are."""
    assert answer.headers["content-type"] == "application/json"
    assert (answer.headers["server"], answer.headers["cache-control"]) == ("taskgate", "no-store")
    return orjson.loads(answer.body)
