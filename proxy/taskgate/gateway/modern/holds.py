"""Calls that wait for their host to come back with answers: in memory, bounded, and no longer than a host may take.

A round of answers counts once: whoever comes first goes on with the call, and it waits under the next round. What must
not live here: what a host is told, and how what it hands back is sealed.
"""

from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Sequence
from logging import getLogger
from typing import Final

from taskgate.admission.rules import RuntimeConfig
from taskgate.clock import Clock, Entropy
from taskgate.domain.record import OwnerKey
from taskgate.errors import InvalidParams
from taskgate.gateway.modern.flights import InflightCall
from taskgate.gateway.modern.session_pool import SharedSession

ID_BYTES: Final = 24
MAX_HELD: Final = 1024
"""Calls that wait here at once, whoever they are of: each keeps a connection to its server."""

log = getLogger("taskgate.stateless")


class Held:
    """A call that waits, or waited, for its host; `until` is None while it is back."""

    __slots__ = ("flight", "id", "line", "round", "until")

    def __init__(self, id: str, line: SharedSession, flight: InflightCall) -> None:
        self.id = id
        self.line = line
        self.flight = flight
        self.round = -1
        self.until: float | None = None


class HeldCalls:
    """The held calls of this process: as many of one context as the rules allow it questions, and MAX_HELD of all.

    `mark`, if it is set, stands in their ids: other processes hold calls, too, and hosts come back to any of them.
    """

    def __init__(self, *, live: RuntimeConfig, clock: Clock, entropy: Entropy) -> None:
        self.mark = ""
        self._live = live
        self._clock = clock
        self._entropy = entropy
        self._held: dict[str, Held] = {}
        self._counts: Counter[str] = Counter()
        self._is_open = True
        self._has_told = False

    @property
    def most(self) -> int:
        """How many calls of one context may wait at once."""
        return self._live.now.questions.outstanding

    def new(self, line: SharedSession, flight: InflightCall) -> Held | None:
        """A place for a call to wait in, which is to be ended; None where there is none left."""
        context = line.owner.context
        if not self._is_open or len(self._held) >= MAX_HELD or self._counts[context] >= self.most:
            if not self._has_told:
                # Once until there is room: how often it happens is for others to decide.
                self._has_told = True
                log.warning(
                    "a call is cancelled: too many calls wait for input from their hosts",
                    extra={"upstream": line.mount.name},
                )
            return None
        id_ = urlsafe_b64encode(self._entropy.token(ID_BYTES)).decode()
        held = Held(f"{self.mark}.{id_}" if self.mark else id_, line, flight)
        self._held[held.id] = held
        self._counts[context] += 1
        return held

    def leave(self, held: Held) -> None:
        """Its host goes away with the questions of the next round."""
        held.round += 1
        held.until = self._clock.elapsed() + self._live.now.questions.wait.total_seconds()
        held.flight.tell(None)

    def find(self, owners: Sequence[OwnerKey], id: str, round: int) -> Held:
        """The call of one of the owners that waits for that round. Raises InvalidParams for any other."""
        held = self._held.get(id)
        if held is None or held.until is None or held.round != round or held.line.owner not in owners:
            raise InvalidParams("Invalid requestState")
        if held.until <= self._clock.elapsed():
            self._expire(held)
            raise InvalidParams("Invalid requestState")
        return held

    def holder_elsewhere(self, id: str) -> str | None:
        """The other process that holds the call of that id; None where it is of this one, or of none."""
        mark, dot, _ = id.partition(".")
        return mark if dot and self.mark and mark != self.mark else None

    def take(self, held: Held) -> None:
        """Its host is back: nobody else can be, until the next round."""
        held.until = None

    def end(self, held: Held) -> None:
        """The call needs its place no more. A second end does nothing."""
        if self._held.pop(held.id, None) is not None:
            self._has_told = False
            context = held.line.owner.context
            self._counts[context] -= 1
            if not self._counts[context]:
                del self._counts[context]

    def sweep(self) -> None:
        """Give up the calls whose host did not come back in time."""
        now = self._clock.elapsed()
        for held in tuple(self._held.values()):
            if held.until is not None and held.until <= now:
                self._expire(held)

    def stop(self) -> None:
        """Give up every call that waits, and let no other begin to."""
        self._is_open = False
        for held in tuple(self._held.values()):
            if held.until is not None:
                self._give_up(held)

    def _expire(self, held: Held) -> None:
        log.info(
            "a call is cancelled: its host did not send the input responses in time",
            extra={"upstream": held.line.mount.name},
        )
        self._give_up(held)

    def _give_up(self, held: Held) -> None:
        """Let the server know that there is no answer, before it hears that nobody waits for its own."""
        self.end(held)
        held.flight.refuse()
        held.flight.close()
