"""A held call of a task: what comes of it, whoever or whatever ends it.

What must not live here: how it gets to leave (`dispatch`), and how its end is written (`completions`).
"""

from collections.abc import Callable
from logging import getLogger
from typing import Final

from taskgate.admission.bulkhead import Ticket
from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.record import FaultReason
from taskgate.errors import QueueFull, UpstreamFailed
from taskgate.lifecycle.deadlines import Call
from taskgate.lifecycle.task_runs import TaskRun
from taskgate.protocol.envelope import Response
from taskgate.protocol.faults import CUT_OFF, call_ended, call_failed
from taskgate.system.interruption import Interrupted
from taskgate.upstream import failures

UNFORESEEN: Final = "The gateway failed while the call was running; it may or may not have completed"

Outcome = Callable[[Response], CallSucceeded | CallFaulted]
"""What a response means for a task. Raises UpstreamFailed where it is none."""

log = getLogger("taskgate.runner")


async def come_of(
    run: TaskRun, call: Call, outcome: Outcome, ticket: Ticket | None
) -> CallSucceeded | CallFaulted | None:
    """What the call came to; None where somebody ended the task before, or goes on with the call elsewhere.

    Its slot is given back when it is over: how long its end takes to be written is no server's time. Raises Gone for
    one that was to be gone on with, and may be made again.
    """
    try:
        with run.scope:
            if not run.stopped:
                return outcome(await call())
    except failures.Gone as gone:
        if run.may_be_made_again:
            raise
        return call_ended(FaultReason.CALL_LOST, str(gone), dispatched=True)
    except UpstreamFailed as failure:
        return call_failed(failure, ran=run.ran)
    except QueueFull as full:
        # One that waited for its turn beside others which make the same call.
        return call_ended(FaultReason.QUEUE, str(full), dispatched=run.ran, retry_after=full.retry_after)
    except Interrupted:
        pass
    except Exception as error:
        # Whatever it was, the task must not stay unfinished for it.
        log.error("Unexpected error in a call", exc_info=error)
        return call_ended(FaultReason.INTERNAL, UNFORESEEN, dispatched=True)
    finally:
        if ticket is not None:
            ticket.close()
    if run.is_left or not run.is_shut_down:
        return None
    return call_ended(FaultReason.SHUTDOWN, CUT_OFF, dispatched=True)
