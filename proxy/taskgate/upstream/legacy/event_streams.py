"""Event streams of a legacy server that are reopened when they end: `go_on`, and the GET stream `ServerStream`.

Servers close streams on purpose and expect them to be reopened after a pause (SEP-1699), so an end
alone is no failure. Some released servers replay stored events on the new connection, but send
nothing new there. So a reopened stream that stays silent is closed and opened again. `go_on` does
that for the stream of a call. `ServerStream` receives what the server sends outside of answers; most
servers also send progress there. It is opened once after the handshake, and reopened from the last
event whenever it ends. A server that refuses it for good is not asked again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final, NamedTuple, Self, TypeVar

from taskgate.clock import Clock
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Response
from taskgate.protocol.vocabulary import SESSION_HEADER
from taskgate.system.background import cancel_and_wait
from taskgate.system.offload import LARGE, in_thread
from taskgate.upstream import failures
from taskgate.upstream.base import Incoming, Messages, Outgoing, Transport
from taskgate.upstream.call_streams import hear_aside, read_stream
from taskgate.upstream.calls import RunningCall
from taskgate.upstream.pauses import FOR_NOW, PAUSE_FIRST, PAUSE_MOST, share
from taskgate.upstream.settings import UpstreamObserver

PAUSE: Final = 1.0
"""Seconds before a stream is reopened if its server asked for no pause."""
WISHED_LEAST: Final = 0.02
WISHED_MOST: Final = 300.0
"""WISHED_LEAST to WISHED_MOST: seconds of a server's pause that are accepted. The timeout of a call
ends a longer one. Some servers lose what they would send while no stream is open."""
NOTICE: Final = 0.1
"""Seconds for a server to notice that the gateway closed a stream."""
PAUSE_GROWN: Final = 30.0
"""Seconds up to which the pause doubles, for a stream that another connection or an earlier process
has."""
MAX_FAILURES: Final = 5
"""Failed attempts in a row after which a stream is lost."""
MAX_FAILURES_AFTER: Final = 10
"""The same for a stream of an earlier process: two and a half minutes, since the outage may have
had other victims.

Also for a stream that was closed here because of its silence: it may have been good.
"""
SILENCE: Final = 15.0
"""Seconds without a message after which a reopened stream is opened again. Keep-alives do not
count: a server sends them on a connection on which it sends nothing else."""
SILENCE_GROWN: Final = 60.0
"""Seconds to which SILENCE doubles while nothing arrives. If silence ends the call, it grows
further, so that the call's own limit still applies."""
TAKEN: Final = 409
"""Status: the server thinks another connection has the stream. It notices the end of that one only
after a while."""
CATCH_UP: Final = 16
"""Turns of the event loop for which an answer waits for what is unread of the GET stream. Two are
usual; what one read of the network brings may take eight."""

_Found = TypeVar("_Found")


def takes_up(headers: Mapping[str, str], last_event: str | None) -> dict[str, str]:
    """Return the headers of a GET for a stream, from after `last_event` if there is one."""
    known = {} if last_event is None else {"Last-Event-ID": last_event}
    return {**headers, **known, "Accept": "text/event-stream"}


def wished(incoming: Incoming) -> float | None:
    """Return the pause in seconds that the server asked for; None if it asked for none."""
    retry = incoming.retry
    return None if retry is None else min(max(retry.total_seconds(), WISHED_LEAST), WISHED_MOST)


class EventPosition(NamedTuple):
    """Position from which a stream is reopened: its last event id, None if it has no ids.

    `pause` is the wait in seconds before it is reopened. `was_heard_here` is False for a stream
    that an earlier process read; the first attempt then does not wait.
    """

    last_event: str | None
    pause: float
    was_heard_here: bool = True


def behind(event: str) -> EventPosition:
    """Return the position of a stream that another process read up to `event`; it is reopened at
    once."""
    return EventPosition(event, PAUSE, was_heard_here=False)


def end_of(over: Incoming) -> EventPosition:
    """Return the position of a stream that has ended."""
    return EventPosition(over.last_event, wished(over) or PAUSE)


class UntilSilent:
    """Iterator of a stream's messages that ends after a silence of so many seconds.

    While bytes of an unfinished message arrive, the stream is not silent.
    """

    __slots__ = ("_incoming", "_messages", "_silence", "fell_silent", "was_heard")

    def __init__(self, incoming: Incoming, silence: float) -> None:
        self._incoming = incoming
        self._messages = incoming.messages()
        self._silence = silence
        self.was_heard = False
        """Whether there was any message."""
        self.fell_silent = False
        """Whether silence ended it, and not the end of the stream."""

    def __aiter__(self) -> Self:
        return self

    @property
    def has_more(self) -> bool:
        return self._messages.has_more

    def offer_to(self, take: Callable[[Sequence[bytes]], int]) -> None:
        """Ignore it: silence is measured where the messages are iterated."""

    async def __anext__(self) -> bytes:
        while True:
            begun = self._incoming.unfinished
            try:
                async with asyncio.timeout(self._silence):
                    message = await anext(self._messages)
            except TimeoutError:
                if self._incoming.unfinished != begun:
                    continue
                self.fell_silent = True
                raise StopAsyncIteration from None
            self.was_heard = True
            return message


async def go_on(
    transport: Transport,
    outgoing: Outgoing,
    place: EventPosition,
    read: Callable[[Messages], Awaitable[_Found | None]],
    *,
    gone: Callable[[], UpstreamFailed] = failures.broke_off,
    placed: Callable[[str], None] | None = None,
) -> _Found:
    """Reopen a stream until `read` returns something other than None; return that.

    `read` is called for each connection, with its messages up to its end or its silence. It returns
    None if what it waits for was not among them. `outgoing` is the GET, without the event id.
    Raises UpstreamFailed: closed if the stream cannot be reopened, what `gone` makes if the server
    has no such stream, or what `read` raises.
    """
    last_event, pause, failures_in_a_row, taken_in_a_row = place.last_event, place.pause, 0, 0
    # Patient: more attempts, with growing pauses; MAX_FAILURES_AFTER says for which streams.
    silence, is_patient = SILENCE, not place.was_heard_here
    wait = 0.0 if is_patient else pause
    while last_event is not None and failures_in_a_row < (MAX_FAILURES_AFTER if is_patient else MAX_FAILURES):
        await asyncio.sleep(wait)
        failures_in_a_row += 1
        wait = min(pause * 2 ** (failures_in_a_row - 1), PAUSE_GROWN) if is_patient else pause
        try:
            incoming = await transport.send(replace(outgoing, headers=takes_up(outgoing.headers, last_event)))
        except UpstreamFailed as failure:
            if failure.reason in _FOR_GOOD:
                break
            # A server may send the head only with the first message: a timeout here is no failure.
            failures_in_a_row -= failure.reason == UpstreamReason.TIMEOUT.value
            continue
        try:
            if incoming.status in FOR_NOW:
                continue
            if incoming.status == TAKEN:
                failures_in_a_row, taken_in_a_row = failures_in_a_row - 1, taken_in_a_row + 1
                wait = min(pause * 2**taken_in_a_row, PAUSE_GROWN)
                continue
            if incoming.status != 200 or not incoming.streams:
                raise gone()
            incoming.placed = placed
            heard = UntilSilent(incoming, silence)
            found = await read(heard)
            if found is not None:
                return found
            last_event, pause = incoming.last_event or last_event, wished(incoming) or pause
            # The gateway closed a silent stream: the server needs a moment to notice, and asked for
            # no pause.
            wait, failures_in_a_row, taken_in_a_row = (NOTICE if heard.fell_silent else pause), 0, 0
            silence = SILENCE if heard.was_heard else min(silence * 2, _longest_silence(outgoing))
            is_patient = heard.fell_silent or not place.was_heard_here
        finally:
            incoming.release()
    raise failures.broke_off()


def _longest_silence(outgoing: Outgoing) -> float:
    """Return the silence after which the call would fail by its own limit, if it has one."""
    return SILENCE_GROWN if outgoing.idle is None else max(SILENCE_GROWN, outgoing.idle.total_seconds() + SILENCE)


_FOR_GOOD: Final = frozenset({UpstreamReason.REDIRECT.value, UpstreamReason.REFUSED.value})
"""Failures that would be the same for every attempt."""


async def read_part(
    observer: UpstreamObserver,
    hear: Callable[[bytes, RunningCall], Awaitable[Response | None]],
    call: RunningCall,
    messages: Messages,
) -> Response | None:
    """Return the response on a stream of the call; None if the stream ends or breaks off before it."""
    try:
        return await read_stream(observer, hear, call, messages)
    except UpstreamFailed as failure:
        # It can be reopened, unless its whole channel has ended.
        if failure.reason != UpstreamReason.CLOSED.value or isinstance(failure, failures.Severed):
            raise
        return None


async def response_in(dialect: LegacyUpstream, message: bytes, call: RunningCall) -> Response | None:
    """Return the response to the call that a message is; None if it is another message."""
    read = partial(dialect.response_to, call.id, message)
    return read() if len(message) <= LARGE else await in_thread(read)


class ServerStream:
    """One GET stream, kept open in a background task until `close`.

    `hear` is called with every message, in order; messages for which it raises UpstreamFailed are
    skipped. `lost` is called once if the answer to a GET shows that the server ended the session;
    the stream then ends. The session id in `headers` varies the pauses between streams.
    """

    def __init__(
        self,
        transport: Transport,
        headers: Mapping[str, str],
        *,
        hear: Callable[[bytes], Awaitable[None]],
        lost: Callable[[], None],
        observer: UpstreamObserver,
        clock: Clock,
    ) -> None:
        self._transport = transport
        self._headers = headers
        self._last_event: str | None = None
        # The pause in seconds that the server asked for on the last stream.
        self._wished_pause: float | None = None
        self._session = headers.get(SESSION_HEADER, "")
        self._hear = hear
        self._lost = lost
        self._observer = observer
        self._clock = clock
        self._known = asyncio.Event()
        self.incoming: Incoming | None = None
        """The stream while it is open. If it `has_unread`, the server may have said that before an
        answer that arrives now."""
        # An empty context: the stream serves all later uses of the session.
        self._task = asyncio.get_running_loop().create_task(self._listen(), context=Context())

    async def known(self, within: float) -> None:
        """Wait for the first attempt, at most `within` seconds: opened, refused or failed."""
        try:
            async with asyncio.timeout(within):
                await self._known.wait()
        except TimeoutError:
            pass

    async def catch_up(self) -> None:
        """Wait until what has arrived was heard, for a few turns of the event loop at most."""
        for _ in range(CATCH_UP):
            await asyncio.sleep(0)
            if self.incoming is None or not self.incoming.has_unread:
                return

    async def close(self) -> None:
        """End the stream, and wait for its end."""
        await cancel_and_wait(self._task)

    async def _listen(self) -> None:
        """Open streams, one after the other, with pauses that grow while streams are short."""
        pause = PAUSE_FIRST
        for turn in count():
            began = self._clock.elapsed()
            try:
                if not await self._read_stream():
                    return
            except UpstreamFailed as failure:
                if failure.reason == UpstreamReason.SESSION_LOST.value:
                    self._lost()
                    return
                if failure.reason == UpstreamReason.REDIRECT.value:
                    # It would be the same for every attempt.
                    return
            finally:
                self._known.set()
            if self._clock.elapsed() - began > PAUSE_MOST:
                pause = PAUSE_FIRST
            if self._wished_pause is not None:
                # The server asked for this pause; its stream did not break.
                await asyncio.sleep(self._wished_pause * (0.5 + share(self._session, turn)))
                pause = PAUSE_FIRST
                continue
            await asyncio.sleep(pause * share(self._session, turn))
            pause = min(pause * 2, PAUSE_MOST)

    async def _read_stream(self) -> bool:
        """Open one stream and read it to its end; returns whether to try again."""
        self._wished_pause = None
        headers = takes_up(self._headers, self._last_event)
        incoming = await self._transport.send(Outgoing(verb="GET", headers=headers, only_listens=True))
        try:
            if incoming.status in FOR_NOW or incoming.status == TAKEN:
                return True
            if incoming.status != 200 or not incoming.streams:
                # The server may have forgotten only the event: open the stream without it next
                # time.
                was_resumed, self._last_event = self._last_event is not None, None
                return was_resumed
            self._known.set()
            await self._hear_all(incoming)
            return True
        finally:
            incoming.release()

    async def _hear_all(self, incoming: Incoming) -> None:
        self._observer.stream_opened("get")
        self.incoming = incoming
        try:
            async for message in incoming.messages():
                await hear_aside(self._observer, self._hear, message)
        finally:
            self.incoming = None
            self._observer.stream_ended("get")
            self._last_event = incoming.last_event or self._last_event
            self._wished_pause = wished(incoming)
