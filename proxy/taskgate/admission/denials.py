"""Why look-ups found nothing of the caller's: what hosts are never told, and operators are.

What must not live here: how tasks are looked for (`lookups`), and what failures cost a caller (`misses`). What holds:
whose a task is that was not found is looked up a while after, for all such look-ups together: no host is answered
sooner or later for it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from taskgate.admission.suspicions import Suspicions
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.record import OwnerKey, TaskId
from taskgate.errors import StoreUnavailable
from taskgate.protocol.envelope import Request
from taskgate.system.background import Background
from taskgate.telemetry.events import EventSink, TaskDenied
from taskgate.telemetry.request_context import RequestContext, current, in_request, no_request

LATER: Final = 0.25
"""Seconds until the look."""
MOST: Final = 256
"""Look-ups that may wait for one; of more is told that nothing was found."""
LENGTH_OF_ID: Final = 32
_LONGEST_NAME: Final = 256

OwnerOf = Callable[[TaskId], Awaitable[OwnerKey | None]]
"""Whose a task is; see TaskStore.owner_of."""


class Missed(NamedTuple):
    """A look-up that found nothing: at which mount, by which method, of which task, and who can tell whose that is."""

    mount: str
    method: str
    task: TaskId
    owner_of: OwnerOf


class _Waiting(NamedTuple):
    missed: Missed
    caller: AuthContext
    request_context: RequestContext | None


class Denials:
    """Tells of them, each in the visit that it was part of."""

    def __init__(self, event_sink: EventSink, clock: Clock, *, most: int = MOST) -> None:
        self._event_sink = event_sink
        self._suspicions = Suspicions(event_sink, clock)
        self._most = most
        self._waiting: list[_Waiting] = []
        self._timer: asyncio.TimerHandle | None = None
        self._background = Background()

    def tell(self, caller: AuthContext, missed: Missed) -> None:
        """The caller did not find a task: tell why, later."""
        if len(self._waiting) >= self._most:
            self._event_sink.emit(_denied(missed, "not_found", None))
            return
        self._waiting.append(_Waiting(missed, caller, _kept(current())))
        if self._timer is None:
            with no_request():
                self._timer = asyncio.get_running_loop().call_later(LATER, self._begin)

    async def settle(self) -> None:
        """Tell of all that wait now."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            owner = await _owner(each.missed)
            with in_request(each.request_context):
                self._tell(each, owner)

    async def close(self) -> None:
        """Tell of all that wait, and of none later. The store is still needed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._background.close()
        await self.settle()

    def _begin(self) -> None:
        self._timer = None
        self._background.run(self.settle)

    def _tell(self, waiting: _Waiting, owner: OwnerKey | None) -> None:
        missed, caller, _ = waiting
        reason = _reason(missed.mount, caller, owner)
        self._event_sink.emit(_denied(missed, reason, owner))
        if reason == _FOREIGN:
            self._suspicions.raise_once("cross_context_access", caller.key, missed.mount)


_FOREIGN: Final = "context_mismatch"


def _reason(mount: str, caller: AuthContext, owner: OwnerKey | None) -> str:
    """Somebody else's is that whether its time is up or not. The caller's own at another mount is not there at this."""
    if owner is None:
        return "not_found"
    if owner.context not in (caller.key, caller.previous_key):
        return _FOREIGN
    return "expired" if owner.mount == mount else "not_found"


async def _owner(missed: Missed) -> OwnerKey | None:
    try:
        return await missed.owner_of(missed.task)
    except StoreUnavailable:
        return None


def _denied(missed: Missed, reason: str, owner: OwnerKey | None) -> TaskDenied:
    whose = None if owner is None else owner.context
    return TaskDenied(missed.mount, missed.method, reason, missed.task[:LENGTH_OF_ID], whose)


def _kept(request_context: RequestContext | None) -> RequestContext | None:
    """What is told of a visit with a denial, and no more: what a host sent may be large, and there may be many."""
    if request_context is None:
        return None
    request = request_context.message
    light = None if not isinstance(request, Request) else Request(request.id, request.method, {}, "", "")
    kept = request_context.for_message(light)
    kept.span = request_context.span
    kept.agent = None if request_context.agent is None else request_context.agent[:_LONGEST_NAME]
    return kept
