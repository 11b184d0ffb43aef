"""Streams that are taken up again where they ended: with the id of their last event, after the pause they asked for.

Servers end streams on purpose and wait to be asked again (SEP-1699), so an end alone is no failure. What must not live
here: what is heard.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeVar

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
ended more."""
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


class Place(NamedTuple):
    """Up to where a stream was heard: its last event, None where it has no ids.

    It is taken up after a pause of so many seconds; `was_heard_here` unless a process before this one heard it.
    """

    last_event: str | None
    pause: float
    was_heard_here: bool = True


def behind(event: str) -> Place:
    """A stream that another process heard up to that event, and that is taken up at once."""
    return Place(event, PAUSE, was_heard_here=False)


def end_of(over: Incoming) -> Place:
    """Where a stream goes on that has ended."""
    return Place(over.last_event, wished(over) or PAUSE)


async def go_on(
    transport: Transport,
    outgoing: Outgoing,
    place: Place,
    read: Callable[[Incoming], Awaitable[_Found | None]],
    *,
    gone: Callable[[], UpstreamFailed] = failures.broke_off,
) -> _Found:
    """What `read` finds in what follows on that place of a stream; it finds None at the end of another part of it.

    `outgoing` is a GET without the id. Raises UpstreamFailed: closed where the stream cannot be taken up, `gone` where
    its server says that there is no such stream, or what `read` raises.
    """
    last_event, pause, failed, taken = place.last_event, place.pause, 0, 0
    here = place.was_heard_here
    until_then, most = (pause, MAX_FAILURES) if here else (0.0, MAX_FAILURES_AFTER)
    while last_event is not None and failed < most:
        await asyncio.sleep(until_then)
        failed += 1
        until_then = pause if here else min(pause * 2 ** (failed - 1), PAUSE_GROWN)
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
            found = await read(incoming)
            if found is not None:
                return found
            last_event, pause = incoming.last_event or last_event, wished(incoming) or pause
            until_then, failed, taken = pause, 0, 0
        finally:
            await incoming.release()
    raise failures.broke_off()


_FOR_GOOD: Final = frozenset({UpstreamReason.REDIRECT.value, UpstreamReason.REFUSED.value})
