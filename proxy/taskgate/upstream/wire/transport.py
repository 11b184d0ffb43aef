"""HTTP to one server: `HttpTransport`, with one connection pool, retries and redirects.

`client` creates one per server. The sessions of both eras send through it (`SessionTransport`). Each request
goes to the configured URL, and follows one redirect within the server's own origin; `redirects` has
what is remembered of them. The transport stores no cookies and reads no environment. A proxy of
`UpstreamSettings.egress` leads to the server. A request is
repeated only while no byte of it may have been sent; `Retrying` has the pauses. No address appears
in a failure. `sse` sends to targets of its own.

The `Pool` opens connections on demand and reuses idle ones. For each request `take` is called, and
`dial` if there is no idle connection. Each connection reports to the pool, its `ConnectionObserver`.
It calls `made` when it is open, and `keep` when its answer was read and it can be reused. It calls
`forget` before it is closed, and `lost` after. The pool owns all of them: when `close` returns, there
are none, not even one that was being opened. Connections and their timers run in an empty context,
because they serve many callers.

`HttpIncoming` is an answer whose head has arrived. Its reader takes the messages, and calls `release`
in any case. Limits on size, rate and noise apply while it is read and end in UpstreamFailed.
"""

import asyncio
import math
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from datetime import timedelta
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Self

from yarl import URL

from taskgate.egress import ForwardProxy
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.sse import EventDecoder, EventTooLarge
from taskgate.system import descriptors
from taskgate.upstream import failures
from taskgate.upstream.base import Outgoing
from taskgate.upstream.notification_limits import SAID_A_SECOND, LeftOut, NotificationBudget
from taskgate.upstream.pauses import share
from taskgate.upstream.settings import Retries, UpstreamSettings, UpstreamTls
from taskgate.upstream.wire.connection import Connection, Target
from taskgate.upstream.wire.dialer import Dialer, cause_of
from taskgate.upstream.wire.heads import AnswerHead, AnswerHeads
from taskgate.upstream.wire.redirects import PERMANENT, Redirects, SessionTarget, url_as_written

if TYPE_CHECKING:
    from taskgate.upstream.wire.decoded_body import DecodedBody

CONNECT: Final = "connect"
"""The reason of a retry, as observers get it: no connection was made."""


class Retrying:
    """Retries for one server. `retries` None allows one attempt. `retried` is called by `tell` with
    the reason."""

    def __init__(self, retries: Retries | None, name: str, retried: Callable[[str], None]) -> None:
        self._pauses = [] if retries is None else list(_pauses(retries))
        self._name = name
        self._retried = retried
        self._requests = count()
        self._ended = asyncio.Event()

    def pauses(self) -> Iterator[float]:
        """Yield the seconds to wait before each further attempt of one request."""
        if not self._pauses:
            return
        request = f"{self._name} {next(self._requests)}"
        for turn, pause in enumerate(self._pauses):
            yield pause * share(request, turn)

    async def wait(self, pause: float, until: float | None) -> bool:
        """Wait for the pause, or until `close`, and return whether to make a further attempt.

        False at once if the loop time `until` would come first. After `close` there is no wait, and
        the transport itself refuses the attempt.
        """
        if until is not None and asyncio.get_running_loop().time() + pause >= until:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._ended.wait()
        return True

    def tell(self) -> None:
        """Report that another attempt is made now, unless `close` was called."""
        if not self._ended.is_set():
            self._retried(CONNECT)

    def close(self) -> None:
        """End all waits, present and later ones, and the reports."""
        self._ended.set()


def _pauses(retries: Retries) -> Iterator[float]:
    """Yield the longest pause before each further attempt; `share` shortens it."""
    pause, most = retries.backoff.total_seconds(), retries.max_backoff.total_seconds()
    for _ in range(retries.attempts - 1):
        yield min(pause, most)
        pause = min(pause * 2, most)


REUSE_WITHIN: Final = 2.0
"""Seconds for which an idle connection is reused. Servers close idle connections after five; a
connection that may be closing must not get a call that is sent only once."""
SOON: Final = 0.5
"""Seconds after which the end of a kept connection is no longer taken for one of its age."""
SHORT: Final = 0.1
"""Seconds of idleness below which none is kept any more after that."""
SHORTENED: Final = 60.0
"""Seconds for which connections are kept for less time after one that was kept for too long."""

_UNMADE: Final = frozenset({UpstreamReason.UNREACHABLE.value, UpstreamReason.INTERNAL.value})
"""Reasons of failures to get a connection, by the server's fault or the gateway's."""
UNKNOWN: Final = 404
"""The status by which a server says that it does not know the URL, or the session."""


class Pool:
    """One connection for each concurrent request, without a limit on their number.

    A connection is in use, from `dial` or `take` until its `keep`, or idle. An idle one is dropped
    after `reuse_within` seconds. `connect` is the connect timeout in seconds, `max_header` the bytes
    of the head of an answer. The system probes a connection after `silence`. With a `proxy` all of
    them go through it. The creation raises TlsFileRefused.
    """

    def __init__(
        self,
        origin: URL,
        *,
        connect: float,
        reuse_within: float,
        max_header: int,
        silence: timedelta | None,
        tls: UpstreamTls,
        proxy: ForwardProxy | None = None,
    ) -> None:
        self._max_header = max_header
        self._dialer = Dialer(origin, tls, silence, proxy)
        self._connect = connect
        self._reuse_within = self._reuse_most = reuse_within
        # Ends a shorter time of reuse.
        self._shortened: asyncio.TimerHandle | None = None
        # Idle connections, the longest idle one first, and the loop times since when they are.
        self._idle: dict[Connection, float] = {}
        # All open connections, in use or idle.
        self._standing: set[Connection] = set()
        # Time limits of the connections being opened; `close` ends the attempts by them.
        self._dials: set[asyncio.Timeout] = set()
        # Runs while there are idle connections.
        self._sweeping: asyncio.TimerHandle | None = None
        # Set while `close` waits; done when nothing is open or being opened.
        self._empty: asyncio.Future[None] | None = None
        self._closed = False
        # Kept: to ask for the running loop is a system call in Python 3.11.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heads: AnswerHeads | None = None

    def time(self) -> float:
        """Return the loop time."""
        self._loop = loop = self._loop or asyncio.get_running_loop()
        return loop.time()

    def take(self) -> Connection | None:
        """Return the idle connection that was used last, which is then in use; None if there is
        none.

        The last one is the safest: a server closes the longest idle one first. Older ones that are
        past their time are dropped on the way. So is one of which anything has arrived that the loop
        has not read: nearly always the server has closed it. Some servers do so after each answer.
        """
        idle, loop = self._idle, self._loop
        if not idle or loop is None:
            return None
        now = loop.time()
        # The time before which one must have become idle to be too old.
        cutoff = now - self._reuse_within
        while idle:
            connection, since = idle.popitem()
            transport = connection.transport
            if since > cutoff and transport is not None and not transport.is_closing() and not connection.has_unread:
                connection.idle_since, connection.taken_at = since, now
                return connection
            connection.drop()
        return None

    def ended(self, kept: Connection) -> None:
        """Learn from a connection that was taken, and that its server closed without an answer.

        If that was SOON, the server had nearly always not read the request. For a while, connections are
        then kept for half of the time for which this one was idle. If that was SHORT, none is kept: such a
        server closes after each answer.
        """
        loop = self._loop
        assert loop is not None, "a connection was taken"
        kept.was_unread = loop.time() - kept.taken_at <= SOON
        if self._closed or not kept.was_unread:
            return
        idle = kept.taken_at - kept.idle_since
        self._reuse_within = min(self._reuse_within, idle / 2 if idle > SHORT else 0.0)
        if self._shortened is not None:
            self._shortened.cancel()
        self._shortened = loop.call_later(SHORTENED, self._lengthen, context=Context())

    def _lengthen(self) -> None:
        self._reuse_within, self._shortened = self._reuse_most, None

    async def dial(self, until: float | None) -> Connection:
        """Open a connection, which is then in use.

        The connect timeout bounds this, or the loop time `until`, at which the caller's wait ends,
        if that is sooner. Raises UpstreamFailed. A `close` at the same moment may have dropped the
        connection that is returned; `Connection.ask` then fails.
        """
        if self._closed:
            raise failures.let_go(dispatched=False)
        self._loop = loop = asyncio.get_running_loop()
        self._heads = heads = self._heads or AnswerHeads(loop, self._max_header)
        last = loop.time() + self._connect
        # Whether the caller's time ends first: a timeout then says nothing about the server.
        hurried = until is not None and until < last
        scope = asyncio.timeout_at(until if hurried else last)
        self._dials.add(scope)
        try:
            async with scope:
                connection = await self._dialer.connect(lambda: Connection(loop, self, heads))
        # ValueError: an impossible host name is only noticed here.
        except (OSError, ValueError) as error:
            if self._closed:
                raise failures.let_go(dispatched=False) from None
            if isinstance(error, OSError) and descriptors.is_exhaustion(error):
                raise failures.no_descriptor() from None
            raise _unmade(error, in_a_hurry=hurried and scope.expired()) from None
        finally:
            self._dials.discard(scope)
            self._tell_if_empty()
        return connection

    async def close(self) -> None:
        """Drop every connection, also those in use or being opened; wait until they are gone.

        Later calls of `dial` fail.
        """
        self._closed = True
        loop = asyncio.get_running_loop()
        for timer in (self._sweeping, self._shortened):
            if timer is not None:
                timer.cancel()
        self._sweeping = self._shortened = None
        # `dial` then sees a timeout, which it reports as the end of the pool.
        for scope in self._dials:
            if not scope.expired():
                scope.reschedule(loop.time())
        for connection in tuple(self._standing):
            connection.drop()
        while self._standing or self._dials:
            self._empty = self._empty or loop.create_future()
            await asyncio.shield(self._empty)

    # --- the observer of its connections ------------------------------------------------------------------------------

    def made(self, connection: Connection) -> None:
        self._standing.add(connection)

    def keep(self, connection: Connection) -> None:
        """Store the connection for the next request, for a limited time."""
        self._loop = loop = self._loop or asyncio.get_running_loop()
        self._idle[connection] = loop.time()
        if self._sweeping is None:
            self._sweeping = loop.call_later(self._reuse_within, self._sweep, context=Context())

    def forget(self, connection: Connection) -> None:
        self._idle.pop(connection, None)

    def lost(self, connection: Connection) -> None:
        self._idle.pop(connection, None)
        self._standing.discard(connection)
        self._tell_if_empty()

    def _sweep(self) -> None:
        """Drop connections that were idle for too long; run again when the next one is due."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._sweeping = None
        for connection, since in tuple(self._idle.items()):
            due = since + self._reuse_within
            if due > now:
                # Inherits the empty context, in which this runs.
                self._sweeping = loop.call_at(due, self._sweep)
                return
            connection.drop()

    def _tell_if_empty(self) -> None:
        """Wake `close` if it waits and nothing is open or being opened."""
        if self._empty is not None and not self._standing and not self._dials and not self._empty.done():
            self._empty.set_result(None)


def _runs_nothing(outgoing: Outgoing) -> bool:
    """Whether a request may be sent again. A stream is reopened by its reader."""
    return outgoing.runs_nothing or (outgoing.call is not None and outgoing.call.runs_nothing)


def _unmade(error: OSError | ValueError, *, in_a_hurry: bool) -> UpstreamFailed:
    """Return the failure of a connection that could not be opened. With `in_a_hurry` the caller's
    time ended before the connect timeout."""
    return failures.too_late(dispatched=False) if in_a_hurry else failures.unreachable(cause_of(error))


A_TURN: Final = 32 * 1024
"""Bytes of an event stream that are processed before the event loop runs other tasks."""
NOISE: Final = 64 * 1024
"""Bytes of an event stream without messages (comments, empty lines, events of other types) that may
come within NOISE_WITHIN."""
NOISE_WITHIN: Final = 16.0
"""Seconds in which the noise limit may be reached once. The first time is allowed always, since the
start of the noise is unknown."""


def _decoded(connection: Connection, coding: str, *, streams: bool) -> "DecodedBody":
    from taskgate.upstream.wire.decoded_body import DecodedBody  # noqa: PLC0415

    return DecodedBody(connection, coding, streams=streams)


class HttpIncoming:
    """An `Incoming` over HTTP. It is its own iterator, so that abandoning it half read costs
    nothing.

    - `status`, `session`, `streams`, `retry_after`: from the head. `streams`: the body is an event stream.
    - `document`: the whole body of an answer that is no event stream.
    - `messages`: begins to read the body; then each iteration returns a message.
    - `last_event`, `retry`: the newest event id, and the pause before a reopening, as the server
      gave them; None without. `unfinished`: the bytes of an event that has not ended.
    - `release`: must be called once at the end; gives the connection back, or drops it.

    `limit` is the largest message in bytes. All bytes of an event stream count towards its limit,
    except answers, which its reader reports by `answered`. `idle` is the allowed silence in
    seconds. `left_out` logs messages that are dropped. `target` is what gave the answer, as its user
    names it.
    `has_valid_type`: the Content-Type, if any, is valid.
    """

    __slots__ = (
        "_ahead",
        "_beside",
        "_connection",
        "_decoder",
        "_fed",
        "_fed_from",
        "_idle",
        "_left_out",
        "_limit",
        "_noise_from",
        "_place",
        "_raised",
        "_ready",
        "_rest",
        "_take",
        "_unreadable",
        "_wait",
        "_was_read",
        "has_more",
        "has_valid_type",
        "placed",
        "retry_after",
        "session",
        "status",
        "streams",
        "target",
    )

    def __init__(
        self,
        connection: Connection,
        head: AnswerHead,
        target: Target,
        limit: int,
        idle: float | None,
        left_out: LeftOut,
    ) -> None:
        self._connection: Connection | DecodedBody | None = connection
        if head.coding is not None:
            self._connection = _decoded(connection, head.coding, streams=head.streams)
        self._limit = limit
        self._idle = idle
        self.placed: Callable[[str], None] | None = None
        self._left_out = left_out
        # None before `messages`, as the messages to deliver.
        self._decoder: EventDecoder | None = None
        self._ready: deque[bytes] | None = None
        self._was_read = False
        self._unreadable = head.unreadable
        self.has_more = False
        self.target: Final = target
        self.status: int = head.status
        self.session: str | None = head.session
        self.streams: bool = head.streams
        self.retry_after: timedelta | None = head.retry_after
        self.has_valid_type: Final[bool] = head.has_valid_type

    def messages(self, other: Callable[[bytes, bytes], None] | None = None) -> Self:
        """Begin to read the body, and return the iterator of its messages. `other` is called with
        type and data of events that are no message.

        Raises UpstreamFailed if the body is neither JSON nor an event stream. So do iterations, for
        a body that breaks off, is silent for too long, or exceeds a limit.
        """
        if self._ready is None:
            if self._unreadable is not None:
                raise protocol_violation(*self._unreadable)
            self._ready = deque()
            if self.streams:
                self._decoder = EventDecoder(self._limit, other)
                self._place: str | None = None
                # The part of a large chunk that is decoded later.
                self._rest = b""
                # Bytes of the stream that count towards the limit.
                self._fed = 0
                self._beside: NotificationBudget | None = None
                # Seconds to wait before more is read.
                self._wait = 0.0
                # The loop times since which the bytes, and the noise, are counted.
                self._fed_from = self._noise_from = -math.inf
                # What handles the first of messages that arrive together, what reads while the reader
                # waits, and what that raised.
                self._take: Callable[[Sequence[bytes]], int] | None = None
                self._ahead: Callable[[Connection], bool] | None = None
                self._raised: Exception | None = None
        return self

    def offer_to(self, take: Callable[[Sequence[bytes]], int]) -> None:
        if self._decoder is not None:
            # Data arrives in the context of the connection.
            run: Callable[..., bool] = copy_context().run
            self._take, self._ahead = take, partial(run, self._read_ahead)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        assert self._ready is not None, "messages() comes before reading"
        decoder = self._decoder
        if decoder is None:
            if self._was_read:
                raise StopAsyncIteration
            document = self.document()
            return document if isinstance(document, bytes) else await document
        while not self._ready:
            if decoder.last_id != self._place:
                self._report_place(decoder.last_id)
            if self._wait:
                await asyncio.sleep(self._wait)
                self._wait = 0.0
            chunk = self._rest
            if not chunk:
                connection = self._connection or self._reads_from()
                chunk = connection.take()
                if not chunk:
                    if connection.has_ended:
                        raise StopAsyncIteration
                    await connection.more(self._idle, ahead=self._ahead)
                    if self._raised is not None:
                        try:
                            raise self._raised
                        finally:
                            self._raised = None
                    continue
            if self._rest or len(chunk) > A_TURN:
                chunk = await self._some_of(chunk)
            messages = self._decode(decoder, chunk)
            if len(messages) == 1:
                self.has_more = False
                return messages[0]
            self._ready.extend(messages)
        message = self._ready.popleft()
        self.has_more = bool(self._ready)
        return message

    def _read_ahead(self, connection: Connection) -> bool:
        """Read what has come while the reader waits; return whether it may wait on."""
        decoder, ready = self._decoder, self._ready
        if decoder is None or ready is None or connection.has_ended:
            return False
        chunk = connection.take()
        if len(chunk) > A_TURN:
            self._rest = chunk
            return False
        try:
            ready.extend(self._decode(decoder, chunk))
        except Exception as error:
            # The reader of the messages raises it. The connection is not broken.
            self._raised = error
            return False
        if ready or self._wait:
            return False
        if decoder.last_id != self._place:
            self._report_place(decoder.last_id)
        return True

    def _decode(self, decoder: EventDecoder, chunk: bytes) -> list[bytes]:
        """Return the messages that a chunk completes, but those that were taken. Raises UpstreamFailed."""
        self._fed += len(chunk)
        if self._fed > self._limit or decoder.noise > NOISE:
            self._expect_moderate(decoder)
        try:
            messages = decoder.feed(chunk)
        except EventTooLarge:
            raise failures.too_large() from None
        if messages and (self._fed > A_TURN or self._beside is not None):
            messages = self._passed_on(messages)
        if messages and self._take is not None:
            del messages[: self._take(messages)]
        return messages

    def _report_place(self, place: str | None) -> None:
        """Tell the reader the id of the newest event, which is another one."""
        if place is not None and self.placed is not None:
            self._place = place
            self.placed(place)

    def answered(self, size: int) -> None:
        """Take `size` bytes off the count: an answer was among the messages of a stream that
        carries many."""
        self._fed -= size

    def _passed_on(self, messages: list[bytes]) -> list[bytes]:
        """Return the messages to deliver, and set the pause before more is read; not used in the
        first turn."""
        beside = self._beside
        if beside is None:
            beside = self._beside = NotificationBudget(self._left_out)
        now = asyncio.get_running_loop().time()
        self._wait = beside.wait(len(messages), now)
        return beside.heard(messages, now)

    async def _some_of(self, chunk: bytes) -> bytes:
        """Return the first part of a large chunk; other tasks run before the rest."""
        if self._rest:
            await asyncio.sleep(0)
        self._rest = chunk[A_TURN:]
        return chunk[:A_TURN]

    def _expect_moderate(self, decoder: EventDecoder) -> None:
        """Raise UpstreamFailed if a limit is reached again too soon; else start to count anew.

        An unfinished event is not counted: it may be the answer, which has a limit of its own.
        """
        now = asyncio.get_running_loop().time()
        if decoder.noise > NOISE:
            if now - self._noise_from < NOISE_WITHIN:
                raise failures.too_talkative()
            self._noise_from, decoder.noise = now, 0
        said = self._fed - decoder.unfinished
        if said > self._limit:
            if now - self._fed_from < self._limit / SAID_A_SECOND:
                raise failures.too_talkative()
            self._fed_from, self._fed = now, self._fed - said

    @property
    def last_event(self) -> str | None:
        return None if self._decoder is None else self._decoder.last_id

    @property
    def unfinished(self) -> int:
        return 0 if self._decoder is None else self._decoder.unfinished

    @property
    def has_unread(self) -> bool:
        if self._decoder is not None and (self._ready or self._rest):
            return True
        return self._connection is not None and self._connection.has_unread

    @property
    def retry(self) -> timedelta | None:
        milliseconds = None if self._decoder is None else self._decoder.retry
        return None if milliseconds is None else timedelta(milliseconds=milliseconds)

    def release(self, *, answered: bool = False) -> None:
        connection, self._connection = self._connection, None
        # A body that broke off may stay in a reference cycle, which must not keep the call alive.
        self.placed = None
        if self._decoder is not None:
            # What was raised leads to the body, which may be large, and back.
            self._take = self._ahead = self._raised = None
        if connection is not None:
            connection.release(linger=answered)

    def drop(self) -> None:
        """Drop the connection, whatever of the body has arrived."""
        if self._connection is not None:
            self._connection.drop()

    def document(self) -> bytes | Coroutine[Any, Any, bytes]:
        if self._unreadable is not None:
            raise protocol_violation(*self._unreadable)
        self._was_read = True
        connection, limit = self._connection or self._reads_from(), self._limit
        if connection.length > limit:
            raise failures.too_large()
        if connection.received > limit:
            raise failures.too_large()
        # Nearly always: all of it came with the head.
        return connection.take().removeprefix(BOM_UTF8) if connection.has_ended else self._late_document()

    async def _late_document(self) -> bytes:
        """Return the document when all of it has come. Nearly always it is taken, and joined, once."""
        pieces: list[bytes] = []
        while True:
            await self._reads_from().more(self._idle, above=self._limit)
            connection = self._reads_from()
            pieces.append(connection.take())
            if connection.received > self._limit:
                raise failures.too_large()
            if connection.has_ended:
                return b"".join(pieces).removeprefix(BOM_UTF8)

    def _reads_from(self) -> "Connection | DecodedBody":
        """Return the connection. Raises UpstreamFailed after `release`: it may have another request."""
        if self._connection is None:
            raise failures.broke_off()
        return self._connection


class HttpTransport:
    """The `Transport` over HTTP. Connections are opened on demand, one for each concurrent request.

    - `send`: sends a request once, and returns the answer when its head has arrived. The caller
      must release it. Raises UpstreamFailed; an HTTP error status is not raised.
    - `reaches`: tries to connect, without a request.
    - `close`: drops every connection.

    `retried` is called with the reason of every further attempt to connect, except for health
    checks. Creating a transport raises TlsFileRefused if a configured TLS file cannot be used.
    """

    def __init__(self, settings: UpstreamSettings, retried: Callable[[str], None] = lambda reason: None) -> None:
        assert settings.url is not None, "an HTTP upstream has a URL"
        proxy = settings.egress.proxy_for(settings.url)
        self.redirects: Final = Redirects(url_as_written(settings.url), proxy)
        """The configured URL, and where the server's redirects lead."""
        self._pool = Pool(
            self.redirects.configured.url,
            connect=settings.connect.total_seconds(),
            reuse_within=REUSE_WITHIN,
            max_header=settings.max_header,
            silence=settings.tcp_keepalive,
            tls=settings.tls,
            proxy=proxy,
        )
        self._retrying = Retrying(settings.retries, settings.name, retried)
        self._closed = False
        self._left_out = LeftOut(settings.name)
        self._limit = settings.max_result

    async def send(
        self, outgoing: Outgoing, to: Target | None = None, *, session: SessionTarget | None = None
    ) -> HttpIncoming:
        """Send one request, and return its answer once the head has arrived.

        Waits at most for the `first_byte` of the request. Connecting is tried as often as
        configured; one that `only_listens` has one attempt. The request is written once, to the
        first connection that is made. A kept one may close without a byte of an answer. Then a request
        that runs nothing is written once more, to a new one. One redirect is followed, within
        the origin and if it does not change the request. Raises UpstreamFailed for any other redirect;
        an error status is an answer.

        The request goes to `to`. Without it, it goes where a permanent redirect has sent its
        `session`, or to the configured URL. Then an answer with an invalid Content-Type is a failure
        too.
        """
        until = None if outgoing.first_byte is None else self._pool.time() + outgoing.first_byte.total_seconds()
        target = to or (session and session.redirected) or self.redirects.shared
        pauses: Iterator[float] | None = None
        redirect: int | None = None
        is_again = False
        while True:
            if self._closed:
                raise failures.let_go(dispatched=False)
            try:
                head = target.head(outgoing)
            except ValueError:
                # Control characters in a header: it can never be sent, so it is not tried again.
                raise failures.unreachable("invalid header") from None
            kept = None if is_again else self._pool.take()
            try:
                connection = kept or await self._pool.dial(until)
                try:
                    # Not in a variable: its error refers to this frame.
                    answer = await connection.ask(head, outgoing.body, until, outgoing.call)
                except asyncio.CancelledError:
                    connection.drop()
                    raise
            except UpstreamFailed as failure:
                is_again = kept is not None and self._was_closed_silently(kept, failure) and _runs_nothing(outgoing)
                pauses = pauses or self._retrying.pauses()
                if not is_again and not await self._may_try_again(failure, outgoing, pauses, until):
                    is_unread = kept is not None and kept.was_unread
                    raise failures.closed(failures.KEPT_TOO_LONG) if is_unread else failure from None
                continue
            if not 300 <= answer.status < 400:
                break
            connection.release()
            target = self.redirects.follow(answer, target if redirect is None else None)
            redirect, pauses = answer.status, None
        idle = None if outgoing.idle is None else outgoing.idle.total_seconds()
        incoming = HttpIncoming(connection, answer, target, self._limit, idle, self._left_out)
        if to is None and (redirect == PERMANENT or answer.status == UNKNOWN):
            self._note(answer, target, session)
        if to is None and not answer.has_valid_type:
            connection.drop()
            raise protocol_violation("its answer has an invalid Content-Type")
        return incoming

    def _note(self, answer: AnswerHead, target: Target, session: SessionTarget | None) -> None:
        """Remember where a permanent redirect has led, or forget it if nothing is there."""
        if answer.status == UNKNOWN:
            self.redirects.forget(session)
        else:
            self.redirects.remember(target, session)

    def _was_closed_silently(self, kept: Connection, failure: UpstreamFailed) -> bool:
        """Whether a kept connection closed before the server answered, from which the pool learns."""
        is_silent = failure.reason == UpstreamReason.CLOSED.value and kept.was_silent and not self._closed
        if is_silent:
            self._pool.ended(kept)
        return is_silent

    async def _may_try_again(
        self, failure: UpstreamFailed, outgoing: Outgoing, pauses: Iterator[float], until: float | None
    ) -> bool:
        """Whether to make another attempt to connect after a failure; waits for its pause."""
        # A stream is reopened by its reader, with its own pauses.
        if failure.reason not in _UNMADE or outgoing.only_listens:
            return False
        pause = next(pauses, None)
        if pause is None or not await self._retrying.wait(pause, until):
            return False
        if not outgoing.checks:
            self._retrying.tell()
        return True

    async def reaches(self, within: float) -> bool:
        """Whether a connection to the configured server is made in so many seconds. A request gets it then."""
        try:
            self._pool.keep(await self._pool.dial(self._pool.time() + within))
        except UpstreamFailed:
            return False
        return True

    async def close(self) -> None:
        """Drop every connection; no further request can be sent."""
        self._closed = True
        self._retrying.close()
        await self._pool.close()
