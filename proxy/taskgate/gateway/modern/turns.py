"""Requests of the stateless era that wait for their turn at a server, or join an equal one that runs.

What must not live here: what a host is told meanwhile (`attending`), and what its call becomes (`calls`).
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any

from taskgate.admission.bulkhead import Ticket
from taskgate.admission.joining import Asking, Joining
from taskgate.errors import QueueFull
from taskgate.gateway.modern.errands import Errand
from taskgate.protocol.envelope import Response
from taskgate.telemetry.audit import Audit, ToolCalled
from taskgate.upstream.hearer import Hearer


class Turns:
    """Has every errand wait for its turn. A call that is refused, or is no task and leaves, is counted here."""

    def __init__(self, *, joining: Joining, audit: Audit) -> None:
        self._joining = joining
        self._audit = audit

    def ask(self, errand: Errand) -> Ticket:
        """A ticket, which is to be closed. Raises QueueFull."""
        try:
            return errand.line.mount.bulkhead.ask(errand.line.owner.context, errand.caller)
        except QueueFull:
            self.refused(errand)
            raise

    async def wait(self, errand: Errand, ticket: Ticket, waited: float = 0.0) -> None:
        """Wait briefly for the turn of an errand that has `waited` some seconds. Raises QueueFull."""
        try:
            await ticket.brief_turn(waited)
        except QueueFull:
            self.refused(errand)
            raise

    def send(self, errand: Errand, hearer: Hearer) -> Coroutine[Any, Any, Response]:
        """The server's response, to this request or to an equal one that runs. Raises QueueFull, and as `Errand.send`.

        Such a one goes on for as long as anybody waits for it.
        """
        return self._in_turn(errand, hearer) if errand.asking is None else self._once(errand, errand.asking, hearer)

    def left(self, errand: Errand) -> None:
        """Count a call that leaves; one that may become a task is counted when that is known."""
        if errand.tool is not None and not errand.may_become_task:
            self.count(errand, "direct")

    def refused(self, errand: Errand) -> None:
        """Count a call that is not let in."""
        if errand.tool is not None:
            self.count(errand, "rejected")

    def count(self, errand: Errand, disposition: str) -> None:
        """Count what became of a call."""
        tool, upstream = errand.tool, errand.line.upstream
        is_listed = tool is not None and upstream.listed(tool) is not None
        self._audit.record(ToolCalled(errand.line.mount.name, tool if is_listed else None, disposition))

    async def _once(self, errand: Errand, asking: Asking, hearer: Hearer) -> Response:
        response = await self._joining.once(asking, partial(self._shared, errand, hearer))
        assert isinstance(response, Response), "what is sent comes to no task"
        return response

    async def _shared(self, errand: Errand, hearer: Hearer) -> Response:
        # Whoever else comes to wait for it does so over another line.
        with errand.line:
            return await self._in_turn(errand, hearer)

    async def _in_turn(self, errand: Errand, hearer: Hearer) -> Response:
        ticket = self.ask(errand)
        if not ticket.granted:
            await self.wait(errand, ticket)
        try:
            self.left(errand)
            return await errand.send(hearer)
        finally:
            ticket.close()
