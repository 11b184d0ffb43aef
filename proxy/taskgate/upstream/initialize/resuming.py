"""Streams that are taken up again where they ended: with the id of their last event, after the pause they asked for.

Servers end streams on purpose and wait to be asked again (SEP-1699), so an end alone is no failure. What must not live
here: what is heard.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream import failures
from taskgate.upstream.base import Incoming, Outgoing, Transport
from taskgate.upstream.pauses import FOR_NOW

PAUSE: Final = 1.0
"""Seconds before a stream is taken up again whose server did not say how many."""
PAUSE_LEAST: Final = 0.1
PAUSE_MOST: Final = 300.0
"""Seconds between which a server's wish is granted. A call's own time ends a longer wait."""
MAX_FAILURES: Final = 5
"""Attempts in a row that may fail before the stream is lost."""

_Found = TypeVar("_Found")


def takes_up(headers: Mapping[str, str], last_event: str | None) -> dict[str, str]:
    """The headers of a GET for a stream: for what came after that event, where there was one."""
    known = {} if last_event is None else {"Last-Event-ID": last_event}
    return {**headers, **known, "Accept": "text/event-stream"}


def wished(incoming: Incoming) -> float | None:
    """The seconds that the server wants between this stream and the next; None where it said nothing."""
    retry = incoming.retry
    return None if retry is None else min(max(retry.total_seconds(), PAUSE_LEAST), PAUSE_MOST)


async def go_on(
    transport: Transport,
    outgoing: Outgoing,
    over: Incoming,
    read: Callable[[Incoming], Awaitable[_Found | None]],
) -> _Found:
    """What `read` finds in what follows on `over`, a stream that has ended; it finds None at the end of another.

    `outgoing` is a GET without the id. Raises UpstreamFailed: closed where the stream cannot be taken up, or what
    `read` raises.
    """
    last_event, pause, failed = over.last_event, wished(over) or PAUSE, 0
    while last_event is not None and failed < MAX_FAILURES:
        await asyncio.sleep(pause)
        failed += 1
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
            if incoming.status != 200 or not incoming.streams:
                break
            found = await read(incoming)
            if found is not None:
                return found
            last_event, pause, failed = incoming.last_event or last_event, wished(incoming) or pause, 0
        finally:
            await incoming.release()
    raise failures.broke_off()


_FOR_GOOD: Final = frozenset({UpstreamReason.REDIRECT.value, UpstreamReason.REFUSED.value})
