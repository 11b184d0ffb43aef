"""The wait for the call of a task: `come_of`. It maps what comes of a call to the event that ends
the task, or to None if no event is to be written.

`TaskExecutor` uses it once for each call, after the record says that the call was sent (`dispatch`).
`Completions` writes the event.
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

    `call` makes the call, and `outcome` maps its response. If the run is stopped, the call is
    cancelled. Then the result depends on why. It is None if the task was ended elsewhere, or another
    process has it or continues the call. It is a failure if the gateway shuts down and no process
    continues the call.

    `ticket` is the permit of the call; None if the caller of this function has none to release. It
    is released here on every path, once the call is over: the time to store the event does not
    occupy the server.

    Raises Gone if a resumed call no longer exists at its server and may be sent again
    (`run.may_be_made_again`). Every other Exception becomes a failure.
    """
    try:
        # A stop before the scope was entered has cancelled nothing, so it is checked here. Then the
        # call is not made.
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
        # Two kinds of calls wait for their permit here. One was joined with equal calls before it
        # became a task. The other was taken over between two rounds. `ran`: an earlier process may
        # have sent it.
        return call_ended(FaultReason.QUEUE, str(full), dispatched=run.ran, retry_after=full.retry_after)
    except ScopeCancelled:
        # The run was stopped: why is decided below.
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
    # The record says that the call was sent, even if the stop came right before that.
    return call_ended(FaultReason.SHUTDOWN, CUT_OFF, dispatched=True)
