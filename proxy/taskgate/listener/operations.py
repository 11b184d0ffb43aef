"""The operators' listener: is the process alive, is it ready, what has it counted; another configuration, and the end.

A listener of its own, so that none of this shares a port, a limit or an exposure with hosts; no message of MCP passes
here. Holds: nothing is answered that a request brought along, no answer tells a version, and nothing is changed for
whoever has no token.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from hmac import compare_digest
from ipaddress import ip_address
from typing import Any, Final

import orjson
from aiohttp import web

from taskgate.listener.patience import ConnectionSettings, HeadWatch
from taskgate.telemetry.events import EventSink, OperatorRequestAnswered
from taskgate.telemetry.metrics.prometheus import PrometheusRecorder

_log = logging.getLogger(__name__)

Ready = Callable[[], Awaitable[Mapping[str, bool]]]
"""Asked what the gateway needs in order to serve, by name, and whether each is there."""

Servers = Callable[[], Mapping[str, Mapping[str, Any]]]
"""Asked how each server does, by name; answered from what is known."""

Replicas = Callable[[], int | None]
"""Asked how many gateways share the store; None where it is not one to share."""

Reload = Callable[[], Awaitable[Mapping[str, Any] | None]]
"""Reads the configuration again, and says what came of it: at least `result`. None where there is none to read."""

End = Callable[[], None]
"""Has the gateway drain and end, as a signal would."""

INVALID: Final = "invalid"
"""The result of a configuration that was not taken over."""

READY_SECONDS: Final = 2.0
"""How long that may take before it counts as a no."""

_RELOAD: Final = "/-/reload"
_DRAIN: Final = "/-/drain"
_LIVEZ, _READYZ = "/livez", "/readyz"

TAKEN: Final = (_LIVEZ, _READYZ, "/healthz", "/-", "/api")
"""Where no metrics can be: what is there, or below, is something else's."""

MOST_CONNECTIONS: Final = 32
"""Connections of operators at once: their descriptors are of those that hosts leave."""

_AT_ONCE: Final = 16
"""Connections that are taken in one turn of the event loop, before any of them is counted."""
BOUNDS: Final = ConnectionSettings(max_header=16 * 2**10, idle_timeout=timedelta())
"""What a head may take; idle connections are aiohttp's to end."""
_CLOSE_SECONDS: Final = 2.0
_IDLE_SECONDS: Final = 75.0
"""Longer than scrapers wait between two scrapes, so that they keep their connection."""


class OperatorsListener:
    """Serves `/livez`, `/readyz`, the metrics where they want to be, `/-/reload` and `/-/drain` on a port of their own.

    `ready` is asked at every probe and every scrape. It should answer from what is known or touch the store once.
    `audit` is told of whoever asked for what needs the token. Without `end` nobody can ask for that.
    """

    def __init__(
        self,
        *,
        metrics: PrometheusRecorder,
        ready: Ready,
        servers: Servers,
        reload: Reload,
        event_sink: EventSink,
        end: End | None = None,
        replicas: Replicas = lambda: None,
    ) -> None:
        self._metrics = metrics
        self._event_sink = event_sink
        self._ready = ready
        self._servers = servers
        self._reload = reload
        self._end = end
        self._replicas = replicas
        self._token: bytes | None = None
        self._draining = False
        self.readiness_was_asked = False
        """Whether /readyz is looked at, to learn of a drain."""
        self._rendering = asyncio.Lock()
        self._runner: web.ServerRunner | None = None
        self._routes: dict[str, Callable[[web.BaseRequest], Awaitable[web.Response]]] = {
            _LIVEZ: self._answer_livez,
            _READYZ: self._answer_readyz,
            _RELOAD: partial(self._answer_operator, self._reload_now),
            _DRAIN: partial(self._answer_operator, self._drain_now),
        }

    async def start(self, host: str, port: int, token: bytes | None = None) -> tuple[str, int]:
        """Listen, and return where; port 0 takes a free one. Raises OSError where it cannot.

        Whoever shows `token` may have the configuration read again, or the gateway end; without one nobody may.
        """
        self._token = token
        server = _Server(self._answer, access_log=None, keepalive_timeout=_IDLE_SECONDS, lingering_time=0)
        self._runner = web.ServerRunner(server, shutdown_timeout=_CLOSE_SECONDS)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, backlog=_AT_ONCE).start()
        except OSError:
            await self.close()
            raise
        bound = self._runner.addresses[0]
        return str(bound[0]), int(bound[1])

    def drain(self) -> None:
        """Not ready from here on; everything else goes on until `close`."""
        self._draining = True
        self._metrics.show_draining()

    async def close(self) -> None:
        """Let go of the port and of every connection; a second close does nothing."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _answer(self, received: web.BaseRequest) -> web.Response:
        if not _names_an_address(received.headers.get("Host", "")):
            return _json(421, {"error": "host not allowed: use localhost or an IP address"})
        path = received.path
        # Asked each time: a configuration that is read again may have them elsewhere, or nowhere.
        route = self._answer_metrics if path == self._metrics.path else self._routes.get(path)
        if route is None:
            return _json(404, {"error": "not found"})
        allowed = "POST" if path in (_RELOAD, _DRAIN) else "GET"
        if received.method != allowed:
            return _json(405, {"error": "method not allowed"}, Allow=allowed)
        return await route(received)

    async def _answer_livez(self, _received: web.BaseRequest) -> web.Response:
        return _json(200, {"status": "live"})

    async def _answer_readyz(self, received: web.BaseRequest) -> web.Response:
        self.readiness_was_asked = True
        checks = await self._check()
        # Told, and no more: a server that is away is no reason to send its hosts elsewhere.
        more = self._more() if "verbose" in received.query else {}
        if self._draining:
            return _json(503, {"status": "draining", "checks": checks, **more})
        if not all(checks.values()):
            return _json(503, {"status": "not ready", "checks": checks, **more})
        return _json(200, {"status": "ready", "checks": checks, **more})

    def _more(self) -> dict[str, Any]:
        replicas = self._replicas()
        return {"upstreams": self._servers(), **({} if replicas is None else {"replicas": replicas})}

    async def _answer_metrics(self, received: web.BaseRequest) -> web.Response:
        await self._check()
        # One at a time: it holds a thread of the pool that others need too.
        async with self._rendering:
            body, content_type = await self._metrics.scrape(received.headers.get("Accept"))
        return web.Response(body=body, headers={"Content-Type": content_type, **_PLAIN})

    async def _answer_operator(
        self, act: Callable[[], Awaitable[web.Response]], received: web.BaseRequest
    ) -> web.Response:
        answer = await act() if (refused := self._refused(received)) is None else refused
        # `remote` is None for whoever has left meanwhile.
        address = received.remote or ""
        self._event_sink.emit(OperatorRequestAnswered(received.method, received.path, answer.status, address))
        return answer

    def _refused(self, received: web.BaseRequest) -> web.Response | None:
        if self._token is None:
            return _json(403, {"error": "not allowed: admin.token_file is not configured"})
        if not _shows(received, self._token):
            return _json(401, {"error": "not authenticated"}, **{"WWW-Authenticate": "Bearer"})
        return None

    async def _reload_now(self) -> web.Response:
        told = await self._reload()
        if told is None:
            return _json(409, {"error": "cannot reload: the gateway was started without a configuration file"})
        return _json(422 if told["result"] == INVALID else 200, dict(told))

    async def _drain_now(self) -> web.Response:
        if self._end is None:
            return _json(409, {"error": "cannot drain here: stop the process that started the gateway"})
        self._end()
        return _json(202, {"status": "draining"})

    async def _check(self) -> dict[str, bool]:
        if self._draining:
            return {}
        try:
            async with asyncio.timeout(READY_SECONDS):
                checks = dict(await self._ready())
        except Exception:
            _log.warning("the readiness check failed", exc_info=True)
            checks = {"answered": False}
        if not self._draining:
            self._metrics.show_ready(all(checks.values()))
        return checks


def _shows(received: web.BaseRequest, token: bytes) -> bool:
    """Whether the request carries the token, and no other; how long that takes tells nothing of it."""
    shown = received.headers.getall("Authorization", [])
    scheme, _, given = shown[0].partition(" ") if len(shown) == 1 else ("", "", "")
    return scheme.lower() == "bearer" and compare_digest(given.strip().encode(errors="surrogateescape"), token)


def _names_an_address(host: str) -> bool:
    """Whether a Host header holds an address or localhost: a page can point any other name at this listener."""
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return name.lower() == "localhost"
    return True


class _Server(web.Server):
    def __call__(self) -> asyncio.Protocol:  # type: ignore[override]
        if len(self._connections) >= MOST_CONNECTIONS:
            return _OneTooMany()
        return _Connection(self, loop=self._loop, **self._kwargs)


class _OneTooMany(asyncio.Protocol):
    """A connection that is ended at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """End it."""
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class _Connection(web.RequestHandler):
    """One connection, whose bad requests are refused without a word of what they said, and whose heads come in time."""

    __slots__ = ("_head",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve it, and wait for the first head, but not for long."""
        super().connection_made(transport)
        self._head = HeadWatch(BOUNDS, self.force_close)
        self._head.begin()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wait for nothing more."""
        super().connection_lost(exc)
        self._head.stop()

    def data_received(self, data: bytes) -> None:
        """Parse, and time what is not yet a request."""
        count = self._request_count
        super().data_received(data)
        if self._request_count > count:
            self._head.stop()
        elif self._current_request is None and not self._head.add(len(data)):
            self.force_close()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer what could not be read, or what went wrong here; the stock answer and log line quote the request."""
        _report("a request was refused", status, exc)
        refusal = _json(status, {"error": "bad request" if status < 500 else "internal error"})
        refusal.force_close()
        return refusal

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """What the base class would log with a traceback, and so with what the peer sent."""
        _report("a connection failed", 500, kw.get("exc_info"))


def _report(what: str, status: int, error: BaseException | None) -> None:
    # Its class alone: what a parser says of bad bytes repeats them.
    level = logging.ERROR if status >= 500 else logging.INFO
    _log.log(level, what, extra={"status": status, "error": type(error).__name__})


# Set because aiohttp would tell its version and Python's otherwise.
_PLAIN: Final = {"Server": "taskgate", "Cache-Control": "no-store"}


def _json(status: int, document: dict[str, Any], **headers: str) -> web.Response:
    return web.Response(
        status=status, body=orjson.dumps(document), content_type="application/json", headers={**_PLAIN, **headers}
    )
