"""The calls that wait for input responses of their host: `HeldCalls`.

A round is one exchange with the host: it gets questions in an answer, and sends the input
responses in a retry. A held call runs on at its server, in this process (docs/decisions/0020):

- `new` adds it when its first questions are about to go to the host.
- `start_wait` begins each round, `stop_wait` ends it when a retry has come.
- `end` removes it: it got its response, became a task, or failed.
- A call whose host takes too long is cancelled, and so are all waiting calls at `stop`.

The id and the number of the round are sealed in the `requestState` of the answer (`rounds`). Only
the first retry with that state continues the call; a second one finds no such round.
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
    """A call that was held at least once.

    `round` is the number of the newest round, from 0. `until` is when the wait for the host's retry
    ends; None while no retry is awaited, because a request of the host runs.
    """

    __slots__ = ("flight", "id", "round", "session", "until")

    def __init__(self, id: str, session: SharedSession, flight: InflightCall) -> None:
        self.id = id
        self.session = session
        self.flight = flight
        self.round = -1
        self.until: float | None = None


class HeldCalls:
    """The held calls of this process.

    A context may have as many as the operator's rules allow outstanding questions, all together
    MAX_HELD. `mark` is the name of this replica, set by `Calls` if there are others. Each id then
    begins with it: hosts retry at any replica, which finds the holder by it.
    """

    def __init__(self, *, live: RuntimeConfig, clock: Clock, entropy: Entropy) -> None:
        self.mark = ""
        self._live = live
        self._clock = clock
        self._entropy = entropy
        self._held: dict[str, Held] = {}
        self._counts: Counter[str] = Counter()
        self._is_open = True
        self._has_logged = False

    @property
    def most(self) -> int:
        """The number of calls of one context that may be held at once."""
        return self._live.current.questions.outstanding

    def new(self, session: SharedSession, flight: InflightCall) -> Held | None:
        """Add a call; None if a limit is reached. `end` must follow, whatever becomes of it."""
        context = session.owner.context
        if not self._is_open or len(self._held) >= MAX_HELD or self._counts[context] >= self.most:
            if not self._has_logged:
                # Logged once until there is room, because others decide how often it happens.
                self._has_logged = True
                log.warning(
                    "a call is cancelled: too many calls wait for input from their hosts",
                    extra={"upstream": session.mount.name},
                )
            return None
        id_ = urlsafe_b64encode(self._entropy.token(ID_BYTES)).decode()
        held = Held(f"{self.mark}.{id_}" if self.mark else id_, session, flight)
        self._held[held.id] = held
        self._counts[context] += 1
        return held

    def start_wait(self, held: Held) -> None:
        """Start the next round: the host is about to get the questions, and its retry is awaited.

        The call has no listener until the retry.
        """
        held.round += 1
        held.until = self._clock.elapsed() + self._live.current.questions.wait.total_seconds()
        held.flight.set_listener(None)

    def find(self, owners: Sequence[OwnerKey], id: str, round: int) -> Held:
        """Return the call that waits for the retry of this round.

        Raises InvalidParams if there is none of these owners, or its time is over.
        """
        held = self._held.get(id)
        if held is None or held.until is None or held.round != round or held.session.owner not in owners:
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

    def stop_wait(self, held: Held) -> None:
        """End the wait, because a retry has come: `find` no longer returns the call, so that no
        second retry continues the round.
        """
        held.until = None

    def end(self, held: Held) -> None:
        """Remove the call; it is not cancelled. A second call does nothing."""
        if self._held.pop(held.id, None) is not None:
            self._has_logged = False
            context = held.session.owner.context
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
                self._cancel(held)

    def _expire(self, held: Held) -> None:
        log.info(
            "a call is cancelled: its host did not send the input responses in time",
            extra={"upstream": held.session.mount.name},
        )
        self._cancel(held)

    def _cancel(self, held: Held) -> None:
        """Cancel a call. Its server first gets a refusal of its questions, then the cancellation."""
        self.end(held)
        held.flight.refuse()
        held.flight.close()
