"""Look-ups that found nothing of the caller's: counted, told of, and in the end answered by nothing but a refusal.

What must not live here: how tasks are found (`lookups`), why they were not (`denials`), and the counting itself
(`penalties`, `admission/rates`).
"""

from datetime import timedelta

from taskgate.admission.denials import Denials, Missed
from taskgate.admission.incidents import Incidents
from taskgate.admission.penalties import Penalties
from taskgate.admission.rates import RateLimiter
from taskgate.admission.suspicions import Suspicions
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.errors import Penalized
from taskgate.streams.exchange import Exchange
from taskgate.telemetry.events import EventSink, SuspicionRaised


class Misses:
    """Hears of every look-up that failed. `penalties` is None where callers are all one."""

    def __init__(
        self,
        *,
        penalties: Penalties | None,
        gate: RateLimiter,
        incidents: Incidents,
        event_sink: EventSink,
        clock: Clock,
    ) -> None:
        self._penalties = penalties
        self._gate = gate
        self._incidents = incidents
        self._event_sink = event_sink
        self._clock = clock
        self._suspicions = Suspicions(event_sink, clock)
        self._denials = Denials(event_sink, clock)

    def expect_no_penalty(self, caller: AuthContext) -> None:
        """Raises Penalized while the caller is in the penalty box."""
        if self._penalties is not None:
            left = self._penalties.left(caller.key, self._clock.elapsed())
            if left > 0:
                raise Penalized(timedelta(seconds=left))

    async def missed(self, exchange: Exchange, caller: AuthContext, missed: Missed) -> None:
        """The caller asked for a task that it does not have, whatever the reason.

        Raises RateLimited where there was no room for one more: one request may name many.
        """
        mount = missed.mount
        self._denials.tell(caller, missed)
        had_room = await self._gate.failed_lookup(caller, exchange, mount)
        if self._penalties is not None and self._penalties.failed(caller.key, self._clock.elapsed()):
            self._event_sink.emit(SuspicionRaised("enumeration_suspected", mount))
            self._incidents.enumerating(exchange, mount)
        if not had_room:
            await self._gate.before_lookups(caller, exchange, mount)

    def polled_too_often(self, caller: AuthContext, mount: str) -> None:
        """A poll of the caller's was refused: it goes on far beyond what it is advised."""
        self._suspicions.raise_once("excessive_polling", caller.key, mount)

    async def close(self) -> None:
        """Tell of what failed and was not told of yet. The store is still needed."""
        await self._denials.close()
