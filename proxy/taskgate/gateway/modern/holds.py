"""The calls that wait for input responses of their host: `HeldCalls`.

A call is held while its host has the questions of a round (docs/decisions/0020). Calls are held in
memory, in bounded number, for the time that a host may take. The id and the round are sealed in the
`requestState` of the answer (`rounds`). A round counts once: the first request with its state
continues the call, which then waits under the next round.
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
"""The limit of held calls of all callers; each holds a connection to its server."""

log = getLogger("taskgate.stateless")


class Held:
    """A call that has been held. `until` is the end of the wait, None while a request of its host
    runs.
    """

    __slots__ = ("flight", "id", "line", "round", "until")

    def __init__(self, id: str, line: SharedSession, flight: InflightCall) -> None:
        self.id = id
        self.line = line
        self.flight = flight
        self.round = -1
        self.until: float | None = None


class HeldCalls:
    """The held calls of this process.

    A context may have as many as the operator's rules allow outstanding questions, all together
    MAX_HELD. `mark`, if set, is the replica's name in each id, because hosts retry at any replica.
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
        """The number of calls of one context that may be held at once."""
        return self._live.current.questions.outstanding

    def new(self, line: SharedSession, flight: InflightCall) -> Held | None:
        """Add a call, which must be ended later; None if a limit is reached."""
        context = line.owner.context
        if not self._is_open or len(self._held) >= MAX_HELD or self._counts[context] >= self.most:
            if not self._has_told:
                # Logged once until there is room, because others decide how often it happens.
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
        """Start the wait of the next round: its host is about to get the questions."""
        held.round += 1
        held.until = self._clock.elapsed() + self._live.current.questions.wait.total_seconds()
        held.flight.tell(None)

    def find(self, owners: Sequence[OwnerKey], id: str, round: int) -> Held:
        """Return the call that waits for this round, if it is of one of the owners; else raise
        InvalidParams.
        """
        held = self._held.get(id)
        if held is None or held.until is None or held.round != round or held.line.owner not in owners:
            raise InvalidParams("Invalid requestState")
        if held.until <= self._clock.elapsed():
            self._expire(held)
            raise InvalidParams("Invalid requestState")
        return held

    def holder_elsewhere(self, id: str) -> str | None:
        """Return the other replica that holds the call of that id; None if it is this one or
        unknown.
        """
        mark, dot, _ = id.partition(".")
        return mark if dot and self.mark and mark != self.mark else None

    def take(self, held: Held) -> None:
        """Stop the wait, because the host has sent responses: no second request can continue the
        round.
        """
        held.until = None

    def end(self, held: Held) -> None:
        """Remove the call. A second end does nothing."""
        if self._held.pop(held.id, None) is not None:
            self._has_told = False
            context = held.line.owner.context
            self._counts[context] -= 1
            if not self._counts[context]:
                del self._counts[context]

    def sweep(self) -> None:
        """Cancel the calls whose host did not send the input responses in time."""
        now = self._clock.elapsed()
        for held in tuple(self._held.values()):
            if held.until is not None and held.until <= now:
                self._expire(held)

    def stop(self) -> None:
        """Cancel every waiting call, and refuse new ones."""
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
        """Cancel a call. Its server first gets a refusal of its questions, then the cancellation."""
        self.end(held)
        held.flight.refuse()
        held.flight.close()
