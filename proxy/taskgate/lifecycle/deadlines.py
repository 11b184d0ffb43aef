"""How long the call of a task may take, from when it leaves: as long as its task lives, or a deadline of its own.

What must not live here: how long a call may be silent, which are its server's own bounds (`upstream`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from taskgate.domain.record import TaskRecord
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.envelope import Response
from taskgate.upstream import failures

DEADLINE: Final = "The call took longer than its deadline"

Call = Callable[[], Awaitable[Response]]
"""Makes a call, and gives the server's response to it; raises UpstreamFailed."""


def time_left(record: TaskRecord, now: datetime) -> timedelta:
    """How long a task still lives; nothing for one that is over."""
    return max(record.expires_at - now, timedelta())


def bounded(call: Call, record: TaskRecord, now: datetime) -> Call:
    """The call of a task that leaves now, which knows how long its task lives, and has no longer than its deadline."""
    if record.deadline is None or record.deadline >= time_left(record, now):
        return call
    return partial(_within, call, record.deadline, _past_deadline)


def wholly_bounded(call: Call, record: TaskRecord, now: datetime) -> Call:
    """As `bounded`, for a call that was made before it had a task, and knows nothing of how long that lives."""
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
