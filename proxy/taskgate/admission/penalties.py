"""The penalty box: contexts that looked for too many tasks that are not theirs, and may look for none for a while.

State, but neither a clock nor a wait: every call says what time it is, in seconds that never go back. What a refusal
looks like, and what counts as a failed look-up, is not decided here.
"""

from collections import deque
from datetime import timedelta


class Penalties:
    """Counts failed look-ups of each context; more than `threshold` within `window` put it into the box for `penalty`.

    A failure counts for less than `window`. What fails while in the box neither counts nor makes the penalty longer,
    and after it the count starts from nothing.

    At most `size` contexts, one or more, are remembered. When one more fails, the one outside the box that last failed
    longest ago is forgotten. Only when all others are in the box, the one whose penalty would end first is let out: so
    a box that is full loses the rest of one penalty, and from then on newcomers push out each other.
    """

    def __init__(
        self,
        threshold: int = 20,
        window: timedelta = timedelta(minutes=1),
        penalty: timedelta = timedelta(minutes=5),
        size: int = 10_000,
    ) -> None:
        self._threshold = threshold
        self._window = window.total_seconds()
        self._penalty = penalty.total_seconds()
        self._size = size
        # Both are ordered, the first to go in front: by the last failure, and by the end of the penalty.
        self._failures: dict[str, deque[float]] = {}
        self._boxed: dict[str, float] = {}

    def adjust(self, threshold: int, window: timedelta, penalty: timedelta) -> None:
        """Go on with other numbers; who is in the box stays there for as long as it was told."""
        self._threshold = threshold
        self._window = window.total_seconds()
        self._penalty = penalty.total_seconds()

    def failed(self, context: str, now: float) -> bool:
        """Note a failed look-up; True exactly when this one put the context into the box."""
        self._let_out(now)
        if self.left(context, now) > 0:
            return False
        # It may be over behind one that is longer, from before `adjust`.
        self._boxed.pop(context, None)
        failures = self._failures.pop(context, None) or deque()
        while failures and now - failures[0] >= self._window:
            failures.popleft()
        failures.append(now)
        is_new_in_box = len(failures) > self._threshold
        self._make_room()
        if is_new_in_box:
            self._boxed[context] = now + self._penalty
        else:
            self._failures[context] = failures
        return is_new_in_box

    def left(self, context: str, now: float) -> float:
        """Seconds of penalty that are left; 0 for who is not in the box."""
        return max(0.0, self._boxed.get(context, now) - now)

    def boxed(self, now: float) -> int:
        """How many contexts are in the box. Changes nothing, so that another thread may ask."""
        return sum(end > now for end in self._boxed.copy().values())

    def _let_out(self, now: float) -> None:
        """Forget the penalties that are over."""
        while self._boxed and self._boxed[first := next(iter(self._boxed))] <= now:
            del self._boxed[first]

    def _make_room(self) -> None:
        """Forget one if no more can be remembered."""
        if len(self._failures) + len(self._boxed) >= self._size:
            forgettable = self._failures or self._boxed
            del forgettable[next(iter(forgettable))]
