"""The operators' listener: `OperatorsListener`, with health, metrics, reload and drain.

    GET  /livez        the process is alive
    GET  /readyz       it can serve; `?verbose` adds upstreams and replicas
    GET  /metrics      Prometheus metrics (the path is configurable)
    POST /-/reload     read the configuration again        with a token of role operator
    POST /-/drain      drain and stop                      with a token of role operator
    /api/v1/…          look at tasks and act on them       with a token; see `operators`
    /ui                the console, a web page over /api/v1; it signs in with a token

It has its own port and limits, and carries no MCP messages. A request whose Host header is no
address, localhost or name of `admin.allowed_hosts` gets 421. Answers repeat nothing of a request
and contain no version.

With `admin.tls` each connection begins with a handshake, and counts as one without a request until
that is done.

A stranger without a token may open any number of connections, and a probe has to get in. So a new
connection evicts one that waits for its peer, unless the request of that has a right token. A
connection waits for a head, or for its answer to be read. Work without a token is bounded.
The routes and the connections stay in one module, because a route says what its connection is worth.

`Service` in `wiring` creates it with functions that read the state of the gateway, reload and end
it. It starts before and closes after all that it reports on. A request for `/-/drain` calls `end`.
The shutdown that follows calls `drain`, which changes only what `/readyz` and the metrics show.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import orjson
from aiohttp import web

from taskgate.admission.rates import address_block
from taskgate.listener.answers import FRONT_PAGE, PAGE_HEADERS
from taskgate.listener.patience import ConnectionSettings, HeadWatch, WriteWatch
from taskgate.listener.peers import read_peer
from taskgate.listener.tls import Certificates, TlsSettings, TlsWire
from taskgate.operators.access import UNCONFIGURED, ApiError, OperatorAccess, Role
from taskgate.system.log_throttle import Throttle
from taskgate.system.timer_wheel import TimerWheel
from taskgate.telemetry.events import EventSink, OperatorRequestAnswered
from taskgate.telemetry.metrics.prometheus import PrometheusRecorder

if TYPE_CHECKING:
    from taskgate.operators.api import OperatorsApi
    from taskgate.operators.console.page import ConsolePage
    from taskgate.operators.control import End, Reload

_log = logging.getLogger(__name__)

Ready = Callable[[], Awaitable[Mapping[str, bool]]]
"""Returns by name what the gateway needs in order to serve, and whether it is available."""

Details = Callable[[], Mapping[str, Any]]
"""Returns what `?verbose` adds to readiness: `upstreams`; `issuers`, `audit`, `replicas` and `vanished` if any."""

INVALID: Final = "invalid"
"""The `result` of a configuration that was rejected."""
NOT_NOW: Final = "not_now"
"""The `result` of a reload while the gateway starts or shuts down."""

READY_SECONDS: Final = 2.0
"""Seconds for a readiness check; a slower one counts as failed."""

_RELOAD: Final = "/-/reload"
_DRAIN: Final = "/-/drain"
MAX_BODY: Final = 64 * 2**10
"""The most bytes of a body."""
_API: Final = "/api/"
_CONSOLE: Final = "/ui"
_LIVEZ, _READYZ = "/livez", "/readyz"

TAKEN: Final = (_LIVEZ, _READYZ, "/healthz", "/-", "/api", _CONSOLE)
"""The paths at or below which the configuration cannot place the metrics. Not all are served."""

MOST_CONNECTIONS: Final = 32
"""The most connections of operators at once; file descriptors are reserved for so many."""
MOST_AT_WORK: Final = 24
"""The most connections at work on other requests than probes; the rest are for probes."""
MOST_STRANGERS: Final = 12
"""The most of them whose requests have no right token."""
MOST_OF_ADDRESS: Final = 8
"""The most of those of one address: Prometheus, its replica and a few agents behind one proxy."""
_SPARED: Final = 8
"""Connections without a request, and connections that only probe, that are evicted last."""

_BACKLOG: Final = 16
"""The backlog of the listening socket. asyncio accepts up to so many connections at once, before
`_Server` counts them."""
_MAX_LINE: Final = 40 * 2**10
"""The most bytes of a request line: the longest query of a list fits, with all its parameters."""
BOUNDS: Final = ConnectionSettings(max_header=_MAX_LINE + 8 * 2**10, idle_timeout=timedelta())
"""The limits of a head and of an answer. A body has the time of a head. The idle timeout is not used:
aiohttp closes idle connections.
"""
_CLOSE_SECONDS: Final = 2.0
_REFUSAL_PAUSE: Final = 1.0
"""Seconds between two reports of refusals with one status, where no token was right."""
_IDLE_SECONDS: Final = 75.0
"""Longer than the interval of scrapers, so that they keep their connection. Browsers do not keep
theirs: the consoles of some operators would take all, and probes find none.
"""


class OperatorsListener:
    """The HTTP server for operators and their tools.

    `ready` is called at every probe and scrape until `drain`, so it should be cheap: at most one
    read of the store. Each action of an operator is emitted to `event_sink`. Refusals without a right
    token are emitted once a second for each status. Without `end`, a request for a drain gets 409.
    The API is served from `serve` on. `page` returns the page at `/`.
    """

    def __init__(
        self,
        *,
        access: OperatorAccess,
        metrics: PrometheusRecorder,
        ready: Ready,
        details: Details,
        reload: "Reload",
        event_sink: EventSink,
        page: Callable[[], bytes],
        end: "End | None" = None,
    ) -> None:
        self._refusals = {status: Throttle(_REFUSAL_PAUSE, access.elapsed) for status in (401, 403)}
        self._metrics = metrics
        self._event_sink = event_sink
        self._ready = ready
        self._page = page
        self._details = details
        self._reload = reload
        self._end = end
        self._access = access
        self._api: OperatorsApi | None = None
        self._console: ConsolePage | None = None
        self._draining = False
        self.readiness_was_asked = False
        """Whether `/readyz` was ever requested.

        If so, a load balancer may watch it, and a drain waits until the balancer sees it.
        """
        self._rendering = asyncio.Lock()
        self._sending: set[asyncio.Task[Any]] = set()
        self._runner: web.ServerRunner | None = None
        self._server: _Server | None = None
        self._certificates: Certificates | None = None
        self._routes: dict[str, Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]] = {
            FRONT_PAGE: self._answer_page,
            _LIVEZ: self._answer_livez,
            _READYZ: self._answer_readyz,
            _RELOAD: partial(self._answer_operator, self._answer_reload),
            _DRAIN: partial(self._answer_operator, self._answer_drain),
        }

    def serve(self, api: "OperatorsApi", console: "ConsolePage") -> None:
        """Serve the API and the console from now on; before, their paths get 503."""
        self._api = api
        self._console = console

    @property
    def has_api(self) -> bool:
        """Whether the API and the console are served."""
        return self._api is not None

    async def start(
        self, host: str, port: int, bounds: ConnectionSettings = BOUNDS, tls: TlsSettings | None = None
    ) -> tuple[str, int]:
        """Listen, and return the address; port 0 takes a free one. Raises OSError or TlsRefused."""
        if tls is not None:
            self._certificates = Certificates(tls)
            self._certificates.load()
            self._certificates.watch()
        self._server = _Server(
            self._answer,
            bounds=bounds,
            certificates=self._certificates,
            access_log=None,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=0,
            max_line_size=_MAX_LINE,
        )
        self._runner = web.ServerRunner(self._server, shutdown_timeout=_CLOSE_SECONDS)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, backlog=_BACKLOG).start()
        except OSError:
            await self.close()
            raise
        bound = self._runner.addresses[0]
        return str(bound[0]), int(bound[1])

    def drain(self) -> None:
        """Answer `/readyz` with 503 "draining" from now on. `Service` calls it as a shutdown begins.

        It drains nothing itself. Every other request is answered until `close`.
        """
        self._draining = True
        self._metrics.show_draining()

    async def close(self) -> None:
        """Close the port and every connection. A second close does nothing."""
        runner, self._runner = self._runner, None
        for sending in self._sending:
            sending.cancel()
        if runner is not None:
            await runner.cleanup()
        if self._certificates is not None:
            self._certificates.close()
        if self._server is not None:
            self._server.close()
        if self._api is not None:
            await self._api.close()

    async def _answer(self, received: web.BaseRequest) -> web.StreamResponse:
        path = received.path
        _connection_of(received).begin(is_probe=path in (_LIVEZ, _READYZ))
        if not self._access.allows_host(received.headers.get("Host", "")):
            text = "host not allowed: use localhost or an IP address, or add the name to admin.allowed_hosts"
            refusal = ApiError(421, "host_not_allowed", text)
            return _json(421, refusal.document() if path.startswith(_API) else {"error": refusal.message})
        if path.startswith(_API):
            return await self._answer_api(received)
        if path == _CONSOLE or path.startswith(f"{_CONSOLE}/"):
            return await self._answer_console(received)
        # Compared each time: a reload may move the metrics or turn them off.
        route = self._answer_metrics if path == self._metrics.path else self._routes.get(path)
        if route is None:
            return _json(404, {"error": "not found"})
        allowed = "POST" if path in (_RELOAD, _DRAIN) else "GET"
        if received.method != allowed:
            return _json(405, {"error": "method not allowed"}, Allow=allowed)
        return await route(received)

    async def _answer_page(self, _received: web.BaseRequest) -> web.Response:
        return _close(web.Response(body=self._page(), headers={**_PLAIN, **PAGE_HEADERS}))

    async def _answer_livez(self, _received: web.BaseRequest) -> web.Response:
        return _json(200, {"status": "live"})

    async def _answer_readyz(self, received: web.BaseRequest) -> web.Response:
        # A balancer asks for no details; an operator's page and commands do.
        self.readiness_was_asked |= "verbose" not in received.query
        checks = await self._check()
        # For information only: an unavailable server is no reason to send hosts elsewhere.
        fields = self._details() if "verbose" in received.query else {}
        if self._draining:
            return _json(503, {"status": "draining", "checks": checks, **fields})
        if not all(checks.values()):
            return _json(503, {"status": "not ready", "checks": checks, **fields})
        return _json(200, {"status": "ready", "checks": checks, **fields})

    async def _answer_metrics(self, received: web.BaseRequest) -> web.Response:
        try:
            self._admit(received, has_token=False)
        except ApiError as busy:
            return _close(_json(busy.status, {"error": busy.message}, **busy.headers))
        await self._check()
        # One scrape at a time: each uses a thread of the pool that others need.
        async with self._rendering:
            body, content_type = await self._metrics.scrape(received.headers.get("Accept"))
        return web.Response(body=body, headers={"Content-Type": content_type, **_PLAIN})

    async def _answer_operator(
        self, answer_operation: Callable[[], Awaitable[web.Response]], received: web.BaseRequest
    ) -> web.Response:
        """Answer reload or drain, if the request has the operators' token, and report it."""
        # `remote` is None after the peer has disconnected.
        address, name = received.remote or "", None
        try:
            shown = received.headers.getall("Authorization", [])
            name, role = self._access.identify(received.headers, shown, read_peer(address)[1])
            if role is not Role.OPERATOR:
                raise ApiError(403, "not_allowed", f"not allowed: the token has the role {role}")
            self._admit(received, has_token=True)
            answer = await answer_operation()
        except ApiError as error:
            answer = _json(error.status, {"error": error.message}, **error.headers)
        if answer.status != 429:
            self._report(OperatorRequestAnswered(received.method, received.path, answer.status, address, name))
        return answer

    def _report(self, event: OperatorRequestAnswered) -> None:
        """Emit an event, unless it is one of many refusals of requests without a right token."""
        throttle = self._refusals.get(event.status) if event.operator is None else None
        left_out = 0 if throttle is None else throttle.take()
        if left_out is not None:
            self._event_sink.emit(replace(event, left_out=left_out))

    async def _answer_api(self, received: web.BaseRequest) -> web.StreamResponse:
        api, address = self._api, received.remote or ""
        if not self._access.has_tokens or api is None:
            return self._refuse_until_served()
        reply = await api.answer(
            method=received.method,
            path=received.path,
            query=list(received.query.items()),
            headers=received.headers,
            authorizations=received.headers.getall("Authorization", []),
            address=read_peer(address)[1],
            read=partial(self._read_admitted, received),
        )
        if reply.audited is not None:
            name = None if reply.operator is None else reply.operator.name
            event = OperatorRequestAnswered(received.method, reply.audited, reply.status, address, name)
            self._report(replace(event, details=reply.details, task=reply.task))
        headers = {**_PLAIN, **_GUARDS, **reply.headers}
        if reply.stream is not None:
            return await self._send(received, reply.stream, {**headers, "Content-Type": reply.media_type})
        answer = web.Response(status=reply.status, body=reply.body, content_type="application/json", headers=headers)
        # A connection cannot go on behind a body that was not read.
        if "Authorization" not in received.headers or not received.content.is_eof():
            answer.force_close()
        return answer

    async def _read_admitted(self, received: web.BaseRequest) -> bytes:
        """Take a place for a request with a right token, and return its body. Raises ApiError."""
        connection = self._admit(received, has_token=True)
        return await _body_of(received, connection.body_seconds)

    def _admit(self, received: web.BaseRequest, *, has_token: bool) -> "_Connection":
        """Take a place for a request that is no probe, and return its connection. Raises ApiError (503)."""
        assert self._server is not None
        connection = _connection_of(received)
        self._server.admit(connection, has_token=has_token)
        return connection

    async def _send(
        self, received: web.BaseRequest, stream: AsyncGenerator[bytes], headers: Mapping[str, str]
    ) -> web.StreamResponse:
        """Send a stream until it ends, its connection is lost, or the listener closes."""
        response = web.StreamResponse(headers={**headers, "X-Accel-Buffering": "no"})
        sending = asyncio.current_task()
        assert sending is not None
        self._sending.add(sending)
        try:
            with suppress(ConnectionError):
                async with aclosing(stream):
                    await response.prepare(received)
                    async for part in stream:
                        if received.transport is None or received.transport.is_closing():
                            break
                        await response.write(part)
        finally:
            self._sending.discard(sending)
            del sending
        response.force_close()
        return response

    async def _answer_console(self, received: web.BaseRequest) -> web.Response:
        console, address = self._console, received.remote or ""
        if not self._access.has_tokens or console is None:
            return self._refuse_until_served()
        reply = console.answer(
            method=received.method,
            path=received.path,
            headers=received.headers,
            authorizations=received.headers.getall("Authorization", []),
            address=read_peer(address)[1],
        )
        if reply.is_audited:
            name = None if reply.operator is None else reply.operator.name
            self._report(OperatorRequestAnswered(received.method, received.path, reply.status, address, name))
        answer = web.Response(status=reply.status, body=reply.body, headers={**_PLAIN, **reply.headers})
        if reply.status in (200, 304):
            # A third of the bytes: the page is often read through a tunnel.
            answer.headers["Vary"] = "Accept-Encoding"
        if reply.status == 200:
            answer.enable_compression()
        return _close(answer)

    def _refuse_until_served(self) -> web.Response:
        """Refuse a request for the API or the console, which are not served."""
        if not self._access.has_tokens:
            unconfigured = ApiError(403, "no_token_configured", UNCONFIGURED)
            return _json(unconfigured.status, unconfigured.document())
        starting = ApiError(503, "starting", "the gateway is starting: try again")
        return _json(503, starting.document(), **{"Retry-After": "1"})

    async def _answer_reload(self) -> web.Response:
        outcome = await self._reload()
        if outcome is None:
            return _json(409, {"error": "cannot reload: the gateway was started without a configuration file"})
        if outcome["result"] == NOT_NOW:
            return _json(503, dict(outcome), **{"Retry-After": "1"})
        return _json(422 if outcome["result"] == INVALID else 200, dict(outcome))

    async def _answer_drain(self) -> web.Response:
        if self._end is None:
            return _json(409, {"error": "cannot drain here: stop the process that started the gateway"})
        self._end()
        return _json(202, {"status": "draining"})

    async def _check(self) -> dict[str, bool]:
        """Run the readiness check, and show its outcome in the metrics; none during a drain."""
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


def _close(answer: web.Response) -> web.Response:
    """Have the connection end with the answer."""
    answer.force_close()
    return answer


def _body_too_large() -> ApiError:
    return ApiError(413, "body_too_large", f"at most {MAX_BODY} bytes are allowed")


async def _body_of(received: web.BaseRequest, seconds: float) -> bytes:
    """Return the body. Raises ApiError: 413 if it is too large, 408 too slow, 400 not readable."""
    if (received.content_length or 0) > MAX_BODY:
        raise _body_too_large()
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for part in received.content.iter_any():
                body += part
                if len(body) > MAX_BODY:
                    raise _body_too_large()
    except TimeoutError:
        raise ApiError(408, "body_too_slow", f"the body must be complete in {seconds:g} s") from None
    except web.RequestPayloadError:
        raise ApiError(400, "invalid_body", "the body is not in its encoding") from None
    return bytes(body)


class _Server(web.Server):
    """The factory of connections, which has their places. `heads` has their timers.

    With `certificates` they are under TLS.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        *,
        bounds: ConnectionSettings,
        certificates: Certificates | None,
        **options: Any,
    ) -> None:
        super().__init__(handler, **options)
        self._bounds = bounds
        self._certificates = certificates
        self._wires: set[TlsWire] = set()
        self.heads = TimerWheel(bounds.head_timeout.total_seconds())

    def __call__(self) -> asyncio.Protocol:  # type: ignore[override]
        open_: list[_Connection | _Wire] = [*self._open(), *self._handshakes()]
        while len(open_) >= MOST_CONNECTIONS:
            evicted = _to_evict(open_)
            open_.remove(evicted)
            evicted.evict()
        if self._certificates is None:
            return self._connect()
        return _Wire(self._certificates.context, self._connect, self._certificates.handshake_timeout, self._wires)

    def close(self) -> None:
        """Abort the handshakes, and stop the timers. The connections are closed already."""
        for each in self._handshakes():
            each.evict()
        self.heads.close()

    def admit(self, connection: "_Connection", *, has_token: bool) -> None:
        """Take a place for a request that is no probe. Raises ApiError (503).

        A connection that waits for its peer has none, unless its request has a token.
        """
        at_work = [each for each in self._open() if each.is_at_work and each is not connection]
        strangers = [each for each in at_work if not each.has_token]
        of_address = [each for each in strangers if each.block == connection.block]
        is_full = len(at_work) >= MOST_AT_WORK
        if is_full or (not has_token and (len(strangers) >= MOST_STRANGERS or len(of_address) >= MOST_OF_ADDRESS)):
            raise ApiError(503, "busy", "too many requests of operators are at work: try again", **{"Retry-After": "1"})
        connection.has_place, connection.has_token = True, has_token

    def _open(self) -> list["_Connection"]:
        # One that was evicted in this turn of the loop is still in the list.
        return [
            each
            for each, transport in self._connections.items()
            if isinstance(each, _Connection) and not transport.is_closing()
        ]

    def _handshakes(self) -> list["_Wire"]:
        return [
            each
            for each in self._wires
            if isinstance(each, _Wire) and not each.is_established and not each.is_closing()
        ]

    def _connect(self) -> "_Connection":
        return _Connection(self, self._bounds, loop=self._loop, **self._kwargs)


def _to_evict(open_: Sequence["_Connection | _Wire"]) -> "_Connection | _Wire":
    """The connection that is evicted for a new one, so that each probe is answered.

    A few new ones, and a few that only probe, are last. Of its kind it is one of the address that has
    most, and of those the one that has waited longest.
    """
    new = [each for each in open_ if not each.was_used]
    waiting = [each for each in open_ if each.was_used and each.is_waiting]
    probes = [each for each in waiting if each.only_probes]
    others = [each for each in waiting if not each.only_probes]
    if len(new) > _SPARED:
        found = new
    elif len(probes) > _SPARED:
        found = probes
    else:
        found = others or probes or new or [each for each in open_ if each.only_probes] or list(open_)
    count = Counter(each.block for each in found)
    return min(found, key=lambda each: (-count[each.block], each.waits_since))


class _Wire(TlsWire):
    """A connection under TLS. During its handshake it has the place of one without a request."""

    was_used: Final = False
    is_waiting: Final = True
    only_probes: Final = True
    block = ""
    waits_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        super().connection_made(transport)
        self.block = _block_of(transport)
        self.waits_since = asyncio.get_running_loop().time()

    def evict(self) -> None:
        """End it at once."""
        self.abort()


class _Connection(web.RequestHandler):
    """One connection. Heads and reads of answers must come in time, and invalid requests get an answer
    that repeats nothing.

    `has_place` and `has_token` are of the request in work, or of the last one.
    """

    __slots__ = ("_bounds", "_head", "_write", "block", "has_place", "has_token", "only_probes", "waits_since")

    def __init__(self, server: _Server, bounds: ConnectionSettings, **options: Any) -> None:
        super().__init__(server, **options)
        self._bounds = bounds
        self._head = HeadWatch(bounds, server.heads, self.force_close)
        self._write: WriteWatch | None = None
        self.block = ""
        self.has_place = self.has_token = False
        self.only_probes = True
        self.waits_since = self._loop.time()

    @property
    def body_seconds(self) -> float:
        """The seconds in which a body must be complete."""
        return self._bounds.head_timeout.total_seconds()

    @property
    def was_used(self) -> bool:
        """Whether it has sent a request."""
        return self._request_count > 0

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for its peer, to send a head or to read an answer without a token."""
        if self.writing_paused:
            return not self.has_token
        # `_waiter` is aiohttp's.
        return self._waiter is not None and not self._waiter.done()

    @property
    def is_at_work(self) -> bool:
        """Whether it works on a request that has a place."""
        return self.has_place and not self.is_waiting

    def begin(self, *, is_probe: bool) -> None:
        """Begin a request."""
        self.has_place = self.has_token = False
        self.only_probes = self.only_probes and is_probe

    def evict(self) -> None:
        """End it at once."""
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve it, with a time limit for the first head."""
        connected = cast("asyncio.Transport", transport)
        # So that the watch sees each byte that waits, also of a short answer.
        connected.set_write_buffer_limits(high=0)
        self._write = WriteWatch(self._bounds, connected)
        self.block = _block_of(transport)
        super().connection_made(transport)
        self._head.begin()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the time limits."""
        super().connection_lost(exc)
        self._head.stop()
        if self._write is not None:
            self._write.stop()

    def pause_writing(self) -> None:
        """Give the peer time to read."""
        super().pause_writing()
        self.waits_since = self._loop.time()
        assert self._write is not None
        self._write.begin()

    def resume_writing(self) -> None:
        """Stop the time limit: all is read."""
        super().resume_writing()
        assert self._write is not None
        self._write.stop()

    def data_received(self, data: bytes) -> None:
        """Parse, with limits on the time and the size of a head until it is complete."""
        # `_request_count` is aiohttp's count of parsed heads, `_current_request` the one in work.
        count = self._request_count
        super().data_received(data)
        if self._request_count > count:
            self._head.stop()
            self.waits_since = self._loop.time()
        elif self._current_request is None and not self._head.add(len(data)):
            self.force_close()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer an invalid request or an internal error. aiohttp's answer and log line would quote
        the request.
        """
        _report("a request was refused", status, exc)
        unreadable = ApiError(400, "bad_request", "bad request: it is not HTTP, or its head is too large")
        # Of a head that is not read no path is known: the error has the form of the API.
        return _close(_json(status, unreadable.document() if status < 500 else {"error": "internal error"}))

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log the class of the error. The base class would log a traceback, with what the peer
        sent.
        """
        _report("a connection failed", 500, kw.get("exc_info"))


def _block_of(transport: asyncio.BaseTransport) -> str:
    return address_block(read_peer((transport.get_extra_info("peername") or ("",))[0])[1])


def _connection_of(received: web.BaseRequest) -> _Connection:
    return cast("_Connection", received.protocol)


def _report(what: str, status: int, error: BaseException | None) -> None:
    # Only its class: a parser's message repeats the invalid bytes.
    level = logging.ERROR if status >= 500 else logging.INFO
    _log.log(level, what, extra={"status": status, "error": type(error).__name__})


# Set because aiohttp would otherwise send its version and Python's.
_PLAIN: Final = {"Server": "taskgate", "Cache-Control": "no-store"}
_GUARDS: Final = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'"}
"""For answers with texts of servers and hosts, in case that a browser shows one."""


def _json(status: int, document: dict[str, Any], **headers: str) -> web.Response:
    return web.Response(
        status=status, body=orjson.dumps(document), content_type="application/json", headers={**_PLAIN, **headers}
    )
