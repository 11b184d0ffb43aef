"""The wait for the call of a task: `come_of`. It turns every way in which a call can end into the
event that ends the task, or into None.

`TaskExecutor` uses it after the call was dispatched (`dispatch`). `Completions` writes the event.
"""

from collections.abc import Callable
from logging import getLogger
from typing import Final

from taskgate.admission.concurrency import Permit
from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.record import FaultReason
from taskgate.errors import QueueFull, UpstreamFailed
from taskgate.lifecycle.deadlines import Call
from taskgate.lifecycle.task_runs import TaskRun
from taskgate.protocol.faults import CUT_OFF, call_ended, call_failed
from taskgate.protocol.messages import Response
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.upstream import failures

UNFORESEEN: Final = "The gateway failed while the call was running; it may or may not have completed"

Outcome = Callable[[Response], CallSucceeded | CallFaulted]
"""Maps a response to the event that ends a task. Raises UpstreamFailed if it is no valid response."""

log = getLogger("taskgate.runner")


async def come_of(
    run: TaskRun, call: Call, outcome: Outcome, ticket: Permit | None
) -> CallSucceeded | CallFaulted | None:
    """Await a call, and return the event that ends its task.

    Returns None if the task ended before, or another process continues the call. The permit is
    released at the end of the call: the time to store the event is not the server's. Raises Gone if
    a resumed call no longer exists at its server and may be sent again.
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
        # The call waited for its permit together with equal calls.
        return call_ended(FaultReason.QUEUE, str(full), dispatched=run.ran, retry_after=full.retry_after)
    except ScopeCancelled:
        pass
    except Exception as error:
        # Whatever the error is, the task must not stay unfinished.
        log.error("Unexpected error in a call", exc_info=error)
        return call_ended(FaultReason.INTERNAL, UNFORESEEN, dispatched=True)
    finally:
        if ticket is not None:
            ticket.release()
    if run.is_left or not run.is_shut_down:
        return None
    return call_ended(FaultReason.SHUTDOWN, CUT_OFF, dispatched=True)
