"""Servers of 2025-11-25 that make tasks of calls themselves: the promise of whoever translates for them.

A protocol; pure. What must not live here: the tasks of hosts, which are the gateway's own, and when a server's task is
looked at (`upstream`).
"""

from datetime import timedelta
from typing import Protocol

from taskgate.domain.record import RequestId
from taskgate.domain.versions import Peer
from taskgate.protocol.envelope import Response
from taskgate.protocol.params import Params
from taskgate.protocol.server_tasks import ServerTask


class NativeDialect(Protocol):
    """How such servers are spoken to. Everything unreadable is UpstreamFailed with reason malformed.

    A task's id is the server's own; no host hears of it.
    """

    def serves(self, server: Peer) -> bool:
        """Whether the server makes tasks of calls where it is asked to (L-TOOL-6)."""
        ...

    def wanting(self, params: Params, ttl: timedelta) -> Params:
        """The parameters of a call with the wish that a task is made of it, and is kept for so long."""
        ...

    def about(self, id: RequestId, method: str, task: str) -> str:
        """A request of one of the `tasks/*` methods about that task."""
        ...

    def created(self, response: Response) -> ServerTask | None:
        """The task that a response says was made of a call; None for any other answer, which is the call's own."""
        ...

    def shown(self, task: str, response: Response) -> ServerTask | None:
        """What a response to `tasks/get` shows of that task; None where the server does not know it.

        UpstreamFailed, reason refused, for any other error: it tells nothing of the task.
        """
        ...

    def came_of(self, task: ServerTask, response: Response) -> Response | None:
        """What the call itself would have been answered with, by the answer to `tasks/result` of a task last seen so.

        None where that cannot be told before the task is looked at again. UpstreamFailed where it was cancelled, or is
        not known to the server any more.
        """
        ...
