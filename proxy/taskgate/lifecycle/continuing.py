"""Calls that another process began, and that rested, or were at their server, when it was gone: they go on here.

What must not live here: who takes a task over (`takeovers`), and how a call ends (`runner`).
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from taskgate.admission.bulkhead import Ticket
from taskgate.clock import Clock
from taskgate.domain.record import TaskRecord
from taskgate.lifecycle.deadlines import Call, time_left, wholly_bounded
from taskgate.lifecycle.rests import Footing, Rest
from taskgate.lifecycle.runs import Run
from taskgate.protocol.envelope import Response
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.resting import NextRound, Resumed
from taskgate.upstream.speaker import Speaker


class Way(NamedTuple):
    """How a call gets to its server: over what, for whom, and when it is its turn."""

    upstream: UpstreamSession
    speaks: Speaker | None
    ticket: Ticket


def going_on(run: Run, record: TaskRecord, rest: Rest, way: Way, clock: Clock) -> Call:
    """The rest of a call, once its host has answered: the server is neither asked nor told anything before."""
    params, tool = record.call.params, record.call.tool
    assert params is not None, "a recovered record has its bodies"
    awaited = run.hearer.awaits(record, rest)
    ends = record.expires_at

    async def call() -> Response:
        answers = await awaited.answers()
        left = max(ends - clock.now(), timedelta())
        if not way.ticket.granted:
            await way.ticket.turn(min(way.ticket.max_wait, left))
        return await way.upstream.run(
            tool,
            params,
            within=left,
            hearer=run.hearer,
            speaker=run.hearer.speaker,
            resumes=NextRound(rest.state, answers, awaited.leave),
        )

    return wholly_bounded(call, record, clock.now())


def standing(
    run: Run, record: TaskRecord, footing: Footing, way: Way, clock: Clock, is_last: Callable[[], Awaitable[bool]]
) -> Call:
    """The rest of a call that its server works at. It has its turn there, however many wait for one."""
    params, tool = record.call.params, record.call.tool
    assert params is not None, "a recovered record has its bodies"
    asked, now = run.hearer.stands(record, footing), clock.now()
    call = partial(
        way.upstream.run,
        tool,
        params,
        within=time_left(record, now),
        hearer=run.hearer,
        resumes=Resumed(footing.foothold, asked, is_last, record.owner.context),
    )
    return wholly_bounded(call, record, now)
