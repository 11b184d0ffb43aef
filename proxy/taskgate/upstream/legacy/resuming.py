"""Streams that are taken up again where they ended: with the id of their last event, after the pause they asked for.

Servers end streams on purpose and wait to be asked again (SEP-1699), so an end alone is no failure. And there are
released ones that say again what they have kept, and nothing on that connection that comes later: so a stream that was
taken up and is silent is asked for anew. What must not live here: what is heard.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, NamedTuple, Self, TypeVar

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream import failures
from taskgate.upstream.base import Incoming, Outgoing, Transport
from taskgate.upstream.pauses import FOR_NOW

PAUSE: Final = 1.0
"""Seconds before a stream is taken up again whose server did not say how many."""
PAUSE_LEAST: Final = 0.1
PAUSE_MOST: Final = 300.0
"""Seconds between which a server's wish is granted. A call's own time ends a longer wait."""
PAUSE_GROWN: Final = 30.0
"""Seconds to which a pause grows, doubling, before a stream that another connection has, or of a process before."""
MAX_FAILURES: Final = 5
"""Attempts in a row that may fail before the stream is lost."""
MAX_FAILURES_AFTER: Final = 10
"""The same of a stream that a process before this one had: two minutes and a half, for what ended that one may have
ended more. And of one that was left here because it was silent: it might have been good."""
SILENCE: Final = 15.0
"""Seconds without a message after which a stream that was taken up is asked for anew. Keep-alives are none: a server
sends them on a connection on which it says nothing else."""
SILENCE_GROWN: Final = 60.0
"""Seconds to which that grows, doubling, while nothing is heard. Where silence ends a call it grows further, so that it
still does."""
TAKEN: Final = 409
"""Another connection has the stream, for all that its server knows: that one's end takes a while to be noticed."""

_Found = TypeVar("_Found")


def takes_up(headers: Mapping[str, str], last_event: str | None) -> dict[str, str]:
    """The headers of a GET for a stream: for what came after that event, where there was one."""
    known = {} if last_event is None else {"Last-Event-ID": last_event}
    return {**headers, **known, "Accept": "text/event-stream"}


def wished(incoming: Incoming) -> float | None:
    """The seconds that the server wants between this stream and the next; None where it said nothing."""
    retry = incoming.retry
    return None if retry is None else min(max(retry.total_seconds(), PAUSE_LEAST), PAUSE_MOST)


class EventPosition(NamedTuple):
    """Up to where a stream was heard: its last event, None where it has no ids.

    It is taken up after a pause of so many seconds; `was_heard_here` unless a process before this one heard it.
    """

    last_event: str | None
    pause: float
    was_heard_here: bool = True


def behind(event: str) -> EventPosition:
    """A stream that another process heard up to that event, and that is taken up at once."""
    return EventPosition(event, PAUSE, was_heard_here=False)


def end_of(over: Incoming) -> EventPosition:
    """Where a stream goes on that has ended."""
    return EventPosition(over.last_event, wished(over) or PAUSE)


class UntilSilent:
    """The messages of a stream up to a silence of so many seconds, which is their end as any other.

    It is none while more and more of a message comes.
    """

    __slots__ = ("_incoming", "_messages", "_silence", "fell_silent", "was_heard")

    def __init__(self, incoming: Incoming, silence: float) -> None:
        self._incoming = incoming
        self._messages = incoming.messages()
        self._silence = silence
        self.was_heard = False
        """Whether there was any."""
        self.fell_silent = False

    def __aiter__(self) -> Self:
        return self

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
    read: Callable[[AsyncIterator[bytes]], Awaitable[_Found | None]],
    *,
    gone: Callable[[], UpstreamFailed] = failures.broke_off,
) -> _Found:
    """What `read` finds in what follows on that place of a stream; it finds None at the end of another part of it.

    A part ends with its connection, and where nothing is heard on that for a while. `outgoing` is a GET without the id.
    Raises UpstreamFailed: closed where the stream cannot be taken up, `gone` where its server says that there is no
    such stream, or what `read` raises.
    """
    last_event, pause, failed, taken = place.last_event, place.pause, 0, 0
    silence, is_patient = SILENCE, not place.was_heard_here
    until_then = 0.0 if is_patient else pause
    while last_event is not None and failed < (MAX_FAILURES_AFTER if is_patient else MAX_FAILURES):
        await asyncio.sleep(until_then)
        failed += 1
        until_then = min(pause * 2 ** (failed - 1), PAUSE_GROWN) if is_patient else pause
        try:
            incoming = await transport.send(outgoing._replace(headers=takes_up(outgoing.headers, last_event)))
        except UpstreamFailed as failure:
            if failure.reason in _FOR_GOOD:
                break
            # A server may begin to answer only when there is something to say: that it does not yet is no failure.
            failed -= failure.reason == UpstreamReason.TIMEOUT.value
            continue
        try:
            if incoming.status in FOR_NOW:
                continue
            if incoming.status == TAKEN:
                failed, taken = failed - 1, taken + 1
                until_then = min(pause * 2**taken, PAUSE_GROWN)
                continue
            if incoming.status != 200 or not incoming.streams:
                raise gone()
            heard = UntilSilent(incoming, silence)
            found = await read(heard)
            if found is not None:
                return found
            last_event, pause = incoming.last_event or last_event, wished(incoming) or pause
            # It was us who ended one that fell silent: the server has a moment to notice, and wished for no pause.
            until_then, failed, taken = (PAUSE_LEAST if heard.fell_silent else pause), 0, 0
            silence = SILENCE if heard.was_heard else min(silence * 2, _longest_silence(outgoing))
            is_patient = heard.fell_silent or not place.was_heard_here
        finally:
            await incoming.release()
    raise failures.broke_off()


def _longest_silence(outgoing: Outgoing) -> float:
    """Beyond that of which a stream ends as failed, where there is one."""
    return SILENCE_GROWN if outgoing.idle is None else max(SILENCE_GROWN, outgoing.idle.total_seconds() + SILENCE)


_FOR_GOOD: Final = frozenset({UpstreamReason.REDIRECT.value, UpstreamReason.REFUSED.value})
