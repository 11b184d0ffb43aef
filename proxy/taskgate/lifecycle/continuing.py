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
from taskgate.lifecycle.checkpoints import CallCheckpoint, RoundCheckpoint
from taskgate.lifecycle.deadlines import Call, time_left, wholly_bounded
from taskgate.lifecycle.task_runs import TaskRun
from taskgate.protocol.envelope import Response
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.principal import Principal
from taskgate.upstream.resume_points import NextRound, Resumed


class CallRoute(NamedTuple):
    """How a call gets to its server: over what, for whom, and when it is its turn."""

    upstream: UpstreamSession
    principal_source: Principal | None
    ticket: Ticket


def going_on(run: TaskRun, record: TaskRecord, rest: RoundCheckpoint, way: CallRoute, clock: Clock) -> Call:
    """The rest of a call, once its host has answered: the server is neither asked nor told anything before."""
    params, tool = record.call.params, record.call.tool
    assert params is not None, "a recovered record has its bodies"
    awaited = run.listener.awaits(record, rest)
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
            listener=run.listener,
            principal=run.listener.principal,
            resumes=NextRound(rest.state, answers, awaited.leave),
        )

    return wholly_bounded(call, record, clock.now())


def standing(
    run: TaskRun,
    record: TaskRecord,
    call_checkpoint: CallCheckpoint,
    way: CallRoute,
    clock: Clock,
    is_last: Callable[[], Awaitable[bool]],
) -> Call:
    """The rest of a call that its server works at. It has its turn there, however many wait for one."""
    params, tool = record.call.params, record.call.tool
    assert params is not None, "a recovered record has its bodies"
    asked, now = run.listener.stands(record, call_checkpoint), clock.now()
    call = partial(
        way.upstream.run,
        tool,
        params,
        within=time_left(record, now),
        listener=run.listener,
        resumes=Resumed(call_checkpoint.resume_point, asked, is_last, record.owner.context),
    )
    return wholly_bounded(call, record, now)
