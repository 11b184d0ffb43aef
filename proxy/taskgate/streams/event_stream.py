"""One event stream to a host, as its writers see it: `EventStream`.

A stream is what writers send messages on; a connection (`SseConnection`) carries it to the host.
There are three kinds:

- `EventStream` ends with its connection.
- `ResumableEventStream` outlives it. Its events have ids and are stored in a log. One connection
  after another carries them, never two at once (H-LEG-8). It ends with `finish` or `discard`.
- `ForwardedEventStream` is this replica's connection of a stream that another replica writes.

The writer ends a stream with `finish`. `close` only ends the connection: a host may resume a
resumable stream after it.
"""

from asyncio import Future
from collections.abc import Callable, Iterable
from typing import Final

from taskgate.clock import Clock
from taskgate.jsontext.large import MessageText
from taskgate.protocol import sse
from taskgate.streams.event_log import EventLog
from taskgate.streams.log_entries import StreamOrigin
from taskgate.streams.sse_connection import SseConnection

PAUSE: Final = sse.retry(1000)
"""The retry field that ends a connection whose stream can be resumed: when to reconnect."""


class EventStream:
    """One event stream without a log: it ends with its connection.

    A subclass defines which of the methods store messages for a host that reconnects.
    """

    __slots__ = ("_callbacks", "connection")

    def __init__(self, connection: SseConnection | None = None) -> None:
        self.connection = connection
        """The connection that carries it now; None if there is none."""
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_closed(self) -> bool:
        """Whether no connection carries it: its writers, its host or a full queue ended the last
        one.
        """
        return self.connection is None

    @property
    def is_ended(self) -> bool:
        """Whether no host will ever read what is sent now."""
        return self.connection is None

    def send_now(self, message: MessageText | bytes) -> bool:
        """Send a message on the present connection only; False if no host gets it.

        It has no event id, and is not replayed when the host resumes the stream. A host too slow for
        the queue is disconnected.
        """
        if self.connection is None:
            return False
        try:
            piece = sse.event(message)
        except UnicodeEncodeError:
            # An event with a hole is worse than the end of the stream.
            self.close()
            return False
        if not self.connection.send(piece):
            self.close()
            return False
        return True

    send = send_now
    """Send a message; False if no host will get it. A subclass may store it, so that a host that
    resumes the stream gets it.
    """

    def send_answer(self, message: MessageText) -> None:
        """Send a message of any size, without an event id, if there is a connection."""
        if self.connection is not None:
            self.connection.send_unbounded([sse.event(message)])

    @property
    def is_congested(self) -> bool:
        """Whether so much waits for a slow host that writers should pause."""
        return self.connection is not None and self.connection.is_congested

    def backpressure(self) -> Future[None] | None:
        """What is done when writers should go on; None if they need not pause."""
        connection = self.connection
        return connection.writable() if connection is not None and connection.is_congested else None

    def more_follows(self) -> None:
        """Expect several messages in this turn of the event loop: the host gets them in one write."""
        if self.connection is not None:
            self.connection.more_follows()

    def finish(self, last: MessageText | None) -> None:
        """End the stream for good with the message `last`, of any size, or without one."""
        if last is not None and self.connection is not None:
            self._disconnect(sse.event(last))
        else:
            self._disconnect()

    def close(self) -> None:
        """End the present connection after what was sent."""
        self._disconnect()

    def connection_lost(self, connection: SseConnection) -> None:
        """Handle the end of a connection; does nothing if another one carries the stream by now."""
        if connection is self.connection:
            self._disconnect()

    def attach(self, connection: SseConnection, missed: Iterable[bytes]) -> None:
        """Continue on another connection, which gets the missed events first.

        The present connection is aborted, and counts as lost.
        """
        if self.connection is not None:
            self.connection.abort()
            self._disconnect()
        connection.send_unbounded(missed)
        self.connection = connection

    def on_connection_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` each time that the stream's connection ends, for any reason."""
        self._callbacks.append(callback)

    def remove_callback(self, callback: Callable[[], None]) -> None:
        """Stop calling it; ignores one that is not registered."""
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    async def wait_closed(self) -> None:
        """Wait until the present connection has ended. For one waiter."""
        if self.connection is not None:
            await self.connection.wait_closed()

    def _disconnect(self, goodbye: bytes = b"") -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            return
        connection.close(goodbye)
        for callback in tuple(self._callbacks):
            callback()


class ForwardedEventStream(EventStream):
    """The connection of this replica to a host, for a stream that another replica writes.

    `streams.handover.StreamForwarder` forwards the events.
    """

    __slots__ = ()

    def forward(self, piece: bytes) -> None:
        """Send a piece as it was written."""
        if self.connection is not None:
            self.connection.send_unbounded([piece])

    def close(self) -> None:
        # The host may reconnect, here or elsewhere.
        self._disconnect(PAUSE)

    def end(self) -> None:
        """End the connection: the stream has ended, or another connection has it."""
        self._disconnect()


class ResumableEventStream(EventStream):
    """A stream that its host can resume: what is sent without a connection waits in the log.

    It ends in one of two ways. `finish` is the normal end; its log can be replayed for a while.
    `discard` deletes the log: no host resumes the stream here. `finish` has no effect after an end,
    but `discard` may follow one. Each end that has an effect calls `on_end`.
    `is_closed` is true while there is no connection, `is_ended` after the end.

    - `name`: the part of its event ids before the number; it begins with `g` for a GET stream.
    - `origin`: what the stream is for; set if other replicas may continue it.
    - `disconnected_at`: when it lost its connection, in monotonic seconds; None while it has one.
    - `_newest`: the number of the newest stored event; `_number`: the last number that was used.
    """

    __slots__ = (
        "_clock",
        "_discard_callbacks",
        "_is_ended",
        "_log",
        "_newest",
        "_number",
        "_on_end",
        "disconnected_at",
        "ends_on_disconnect",
        "name",
        "origin",
    )

    def __init__(
        self,
        connection: SseConnection | None,
        *,
        name: str,
        log: EventLog,
        clock: Clock,
        on_end: Callable[["ResumableEventStream"], None],
        origin: StreamOrigin | None = None,
    ) -> None:
        super().__init__(connection)
        self._log = log
        self._clock = clock
        self._number = 0
        self._newest = 0
        self._is_ended = False
        self._on_end = on_end
        self._discard_callbacks: list[Callable[[], None]] = []
        self.name = name
        self.origin = origin
        self.disconnected_at: float | None = None
        self.ends_on_disconnect = False
        """Whether no host can resume it any more, because its session has ended."""
        if connection is not None:
            connection.send(self.priming)

    @property
    def priming(self) -> bytes:
        """The priming event, which gives the host an id to resume from."""
        return sse.priming(f"{self.name}-0")

    @property
    def is_ended(self) -> bool:
        return self._is_ended

    @property
    def is_call_stream(self) -> bool:
        """Whether it answers a request, with whose answer it ends; else it is a GET stream."""
        return self.name.startswith("p")

    @property
    def is_transferable(self) -> bool:
        """Whether another replica can continue it alone.

        So for a GET stream and for a wait for a task. The stream of a plain call is fed by the call
        in this process.
        """
        return self.origin is not None and (not self.is_call_stream or self.origin.task is not None)

    @property
    def is_expendable(self) -> bool:
        """Whether it is discarded if its host stays disconnected.

        Not so the stream of a plain call, which runs on (H-LEG-10). Other requests registered what
        to do with `on_discard`.
        """
        return not self.is_call_stream or bool(self._discard_callbacks)

    def missed_since(self, number: int) -> list[bytes] | None:
        """The events after that number; None if some of them are gone."""
        # A number after the newest event is that of a direct piece: the host missed nothing.
        return [] if self._newest <= number <= self._number else self._log.events_after(self.name, number)

    def next_number(self) -> int:
        """Use a number for a direct piece in the shared log, which is no event of this stream.

        The numbers of entries in that log have no gaps, so such a piece takes one too.
        """
        self._number += 1
        return self._number

    def replay(self, event: bytes) -> None:
        """Store an event of the stream that this one continues, under a new id of this one."""
        self._number = self._newest = number = self._number + 1
        piece = event if not event.startswith(b"id: ") else event.partition(b"\n")[2]
        piece = f"id: {self.name}-{number}\n".encode() + piece
        self._log.append(self.name, number, piece)

    def send(self, message: MessageText | bytes) -> bool:
        # Without a connection the event waits for the host; False only after the end.
        if self._is_ended:
            return False
        self._number = self._newest = number = self._number + 1
        name = self.name
        try:
            piece = sse.event(message, f"{name}-{number}")
        except UnicodeEncodeError:
            self.discard()
            return False
        self._log.append(name, number, piece)
        # A connection of another replica gets the event from the shared log.
        connection = self.connection
        if connection is not None and not connection.is_remote and not connection.send(piece):
            self.close()
        return True

    def finish(self, last: MessageText | None) -> None:
        # A host that reconnects later gets what it missed, and the end.
        if self._is_ended:
            return
        self._is_ended = True
        self._on_end(self)
        piece = b""
        if last is not None:
            self._number = self._newest = self._number + 1
            piece = sse.event(last, f"{self.name}-{self._number}")
        self._log.end(self.name, self._number, piece or None)
        self._disconnect(piece)

    def close(self) -> None:
        self._disconnect(PAUSE)

    def attach(self, connection: SseConnection, missed: Iterable[bytes]) -> None:
        super().attach(connection, missed)
        self.disconnected_at = None

    def on_discard(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the stream is discarded: the host did not reconnect in time, or
        another replica continues the stream. Called at once if the host cannot reconnect.
        """
        self._discard_callbacks.append(callback)
        if self.ends_on_disconnect and self.is_closed:
            self.discard()

    def discard(self) -> None:
        """End the stream and delete its events, because no host will resume it here.

        The `on_discard` callbacks are called.
        """
        self._is_ended = True
        self._on_end(self)
        self._log.delete(self.name)
        self._disconnect()
        callbacks, self._discard_callbacks = self._discard_callbacks, []
        for callback in callbacks:
            callback()

    def _disconnect(self, goodbye: bytes = b"") -> None:
        if self.connection is not None:
            self.disconnected_at = self._clock.elapsed()
        super()._disconnect(goodbye)
        if self.ends_on_disconnect and self.is_expendable and not self._is_ended:
            self.discard()
