"""The continuation of a call that an earlier process began: `going_on` between two rounds,
`standing` at a server that works on the call.

`TaskExecutor` uses them for a task that was taken over, with the checkpoint of its record. Neither
sends the call itself again. Each returns a `Call`: a function that continues it and returns the
server's response.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from taskgate.admission.concurrency import Permit
from taskgate.clock import Clock
from taskgate.domain.record import TaskRecord
from taskgate.lifecycle.checkpoints import CallCheckpoint, RoundCheckpoint
from taskgate.lifecycle.deadlines import Call, time_left, wholly_bounded
from taskgate.lifecycle.task_runs import TaskRun
from taskgate.protocol.messages import Response
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.principal import Principal
from taskgate.upstream.resume_points import NextRound, Resumed


class CallRoute(NamedTuple):
    """The route of a call to its server: the upstream session, the principal, the permit.

    `principal_source` is the caller of a new task. It is None for a task that was taken over, whose
    session knows the principal. `ticket` may not be granted yet.
    """

    upstream: UpstreamSession
    principal_source: Principal | None
    ticket: Permit


def going_on(run: TaskRun, record: TaskRecord, rest: RoundCheckpoint, route: CallRoute, clock: Clock) -> Call:
    """Return the call that waits for the host's answers and then sends the next round.

    The server gets no message before that, so the wait for the permit begins after the answers.
    """
    params, tool = record.call.params, record.call.tool
    assert params is not None, "a recovered record has its bodies"
    waiter = run.listener.awaits(record, rest)
    ends = record.expires_at

    async def call() -> Response:
        answers = await waiter.answers()
        left = max(ends - clock.now(), timedelta())
        if not route.ticket.is_granted:
            await route.ticket.wait(min(route.ticket.max_wait, left))
        return await route.upstream.run(
            tool,
            params,
            within=left,
            listener=run.listener,
            principal=run.listener.principal,
            resumes=NextRound(rest.state, answers, waiter.leave),
        )

    return wholly_bounded(call, record, clock.now())


def standing(
    run: TaskRun,
    record: TaskRecord,
    call_checkpoint: CallCheckpoint,
    route: CallRoute,
    clock: Clock,
    is_last: Callable[[], Awaitable[bool]],
) -> Call:
    """Return the call that resumes at its server: its stream is reopened, or its task polled.

    It does not wait for the permit, because the server is working on the call already. `is_last` is
    whether no other task uses the upstream session; it is asked when the call is over.
    """
    params, tool = record.call.params, record.call.tool
    assert params is not None, "a recovered record has its bodies"
    asked, now = run.listener.stands(record, call_checkpoint), clock.now()
    call = partial(
        route.upstream.run,
        tool,
        params,
        within=time_left(record, now),
        listener=run.listener,
        resumes=Resumed(call_checkpoint.resume_point, asked, is_last, record.owner.context),
    )
    return wholly_bounded(call, record, now)
