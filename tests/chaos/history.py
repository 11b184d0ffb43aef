"""What hosts did and were told, and what servers ran: the evidence that a run of the chaos test is judged by.

All moments are of one monotonic clock. What must not live here: how it comes about (`hosts`), and what must hold of it
(`checker`).
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What a host asked for."""

    CREATE = "create"
    GET = "get"
    RESULT = "result"
    CANCEL = "cancel"


class Seen(StrEnum):
    """What it was told: a status, or why it was told none."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """There is no such task."""
    ENDED_BEFORE = "ended_before"
    """A cancel came too late."""
    REFUSED = "refused"
    """By a limit, or because the store or the gateway was not able to: nothing was done."""
    NO_ANSWER = "no_answer"
    """The connection broke: whether anything was done is not known."""
    WRONG = "wrong"
    """Something that must never be said."""

    @property
    def is_end(self) -> bool:
        """Whether a task that was seen so has ended."""
        return self in (Seen.COMPLETED, Seen.FAILED, Seen.CANCELLED)

    @property
    def is_alive(self) -> bool:
        """Whether a task that was seen so had not ended."""
        return self in (Seen.WORKING, Seen.INPUT_REQUIRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One request of a host, from when it left to when its answer was there.

    `caller` is whose request it was, `call` the number of the call that a create was for. `text` is the outcome where
    one was told, and else what was said in words.
    """

    kind: Kind
    caller: str
    begun: float
    ended: float
    seen: Seen
    task: str | None = None
    call: int | None = None
    text: str = ""
    replica: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One run of a tool at the server: of which call, for whom, since when."""

    call: int
    caller: str
    begun: float


@dataclass(slots=True)
class History:
    """All of it, in no order. `caps` is how many unfinished tasks each caller may have."""

    operations: list[Operation] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    cap: int = 0
