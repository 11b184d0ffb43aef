"""Look-ups that found nothing of the caller's: counted, told of, and in the end answered by nothing but a refusal.

What must not live here: how tasks are found (`lookups`), and the counting itself (`penalties`, `admission/rates`).
"""

from datetime import timedelta

from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.engine.admission.rates import RateGate
from taskgate.engine.guard.incidents import Incidents
from taskgate.engine.guard.penalties import Penalties
from taskgate.engine.messages import Exchange
from taskgate.errors import Penalized
from taskgate.telemetry.audit import Audit, EnumerationSuspected, TaskDenied


class Misses:
    """Hears of every look-up that failed. `penalties` is None where callers are all one."""

    def __init__(
        self, *, penalties: Penalties | None, gate: RateGate, incidents: Incidents, audit: Audit, clock: Clock
    ) -> None:
        self._penalties = penalties
        self._gate = gate
        self._incidents = incidents
        self._audit = audit
        self._clock = clock

    def expect_no_penalty(self, caller: AuthContext) -> None:
        """Raises Penalized while the caller is in the penalty box."""
        if self._penalties is not None:
            left = self._penalties.left(caller.key, self._clock.elapsed())
            if left > 0:
                raise Penalized(timedelta(seconds=left))

    async def missed(self, exchange: Exchange, caller: AuthContext, mount: str, method: str) -> None:
        """The caller asked for a task that it does not have, whatever the reason.

        Raises RateLimited where there was no room for one more: one request may name many.
        """
        self._audit.record(TaskDenied(mount, method))
        had_room = await self._gate.failed_lookup(caller, exchange, mount)
        if self._penalties is not None and self._penalties.failed(caller.key, self._clock.elapsed()):
            self._audit.record(EnumerationSuspected(mount))
            self._incidents.enumerating(exchange, mount)
        if not had_room:
            await self._gate.before_lookups(caller, exchange, mount)
