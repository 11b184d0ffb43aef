"""The time limits of a task's call: `bounded` and `wholly_bounded`.

A call may take until its task expires, and no longer than its own deadline if it has one. The
deadline counts from the moment that the wrapped call starts. At either limit the call is cancelled
and fails with UpstreamFailed. `TaskExecutor`, `Runner` and `continuing` wrap calls with these
functions. The limit on a server's silence belongs to the upstream (`upstream`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from taskgate.domain.record import TaskRecord
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.messages import Response
from taskgate.upstream import failures

DEADLINE: Final = "The call took longer than its deadline"

Call = Callable[[], Awaitable[Response]]
"""Makes a call, and returns the server's response. Raises UpstreamFailed."""


def time_left(record: TaskRecord, now: datetime) -> timedelta:
    """Return how long a task still lives; zero if it has expired."""
    return max(record.expires_at - now, timedelta())


def bounded(call: Call, record: TaskRecord, now: datetime) -> Call:
    """Limit a call by its task's deadline.

    For a call that gets the remaining lifetime itself (`UpstreamSession.run`, parameter `within`).
    """
    if record.deadline is None or record.deadline >= time_left(record, now):
        return call
    return partial(_within, call, record.deadline, _past_deadline)


def wholly_bounded(call: Call, record: TaskRecord, now: datetime) -> Call:
    """Limit a call by deadline and lifetime, both from now on.

    For a call that was sent before it had a task, or by an earlier process.
    """
    living = partial(_within, call, time_left(record, now), partial(failures.too_late, dispatched=True))
    return bounded(living, record, now)


async def _within(call: Call, span: timedelta, late: Callable[[], UpstreamFailed]) -> Response:
    try:
        async with asyncio.timeout(span.total_seconds()):
            return await call()
    except TimeoutError:
        raise late() from None


def _past_deadline() -> UpstreamFailed:
    return UpstreamFailed(UpstreamReason.TIMEOUT, DEADLINE, dispatched=True)
