"""The reloadable configuration of admission: `AdmissionRules`, and `RuntimeConfig` with the present
ones.

Most of the gateway has the one `RuntimeConfig`, and reads `current` each time that it needs a rule.
A reload replaces all rules at once, by setting `current` to other `AdmissionRules`. Code that reads
it twice in one step may see two generations, so a step reads it once.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from taskgate.auth.authorization import AccessPolicy
from taskgate.domain.handoff import USUAL as USUAL_HANDOFF
from taskgate.domain.handoff import HandoffRules
from taskgate.domain.limits import Caps, Overrides
from taskgate.domain.policy import PromotionPolicy
from taskgate.domain.polling import PollPolicy
from taskgate.domain.rates import RatePolicies
from taskgate.streams.bytes_in_flight import USUAL_BOUNDS as USUAL_BYTES
from taskgate.streams.bytes_in_flight import ByteBounds
from taskgate.streams.event_log import USUAL_BOUNDS as USUAL_EVENTS
from taskgate.streams.event_log import EventBounds

MAX_QUESTION: Final = 4 * 1024 * 1024
"""Characters of the parameters of a task's open input requests: its head has them, and each change
writes it.
"""


class QuestionBounds(NamedTuple):
    """The longest wait of a question for its answer, and the most open ones of a task or session."""

    wait: timedelta
    outstanding: int


class CallerLimit(NamedTuple):
    """The most that one caller may have open (`context`), and its person with all clients (`subject`)."""

    context: int
    subject: int


_SESSIONS: Final = CallerLimit(100, 200)
_STREAMS: Final = CallerLimit(100, 200)
_WAITS: Final = CallerLimit(64, 128)


class RejectAs(StrEnum):
    """The form in which a call is told that a limit refuses it."""

    JSONRPC = "jsonrpc"
    """A JSON-RPC error under HTTP 200, which every released host survives."""
    HTTP = "http"
    """The same error under HTTP 429."""
    TOOL_ERROR = "tool_error"
    """For `tools/call` a result with isError, which models read; otherwise as JSONRPC."""


class OnStoreError(StrEnum):
    """The replacement of shared rates while their store is unavailable."""

    LOCAL = "local"
    """Each gateway enforces its part of every rate: the rate divided by the number of gateways."""
    OPEN = "open"
    """Every rate allows."""
    CLOSED = "closed"
    """Requests with a rate are refused with code 503."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRules:
    """One generation of rules: those of one configuration. They never change.

    - `policy`: which tools run as tasks; `polling`: the poll intervals; `access`: the access rules.
    - `rates`, `caps`, `overrides`: the rate limits, the limits of stored tasks, and those of some
      callers that have other ones.
    - `questions`: the limits of questions to hosts.
    - `handoff`: how long hosts without tasks wait for answers.
    - `reject_as`, `exposes_quota`: how hosts learn of a limit.
    - `sessions`, `streams`, `waits`: the most that one caller may have open; `all_waits` that of all
      callers, None without a limit.
    - `events`: the limit of stored events of resumable streams; `in_flight`: of large messages.
    - `names_callers`: whether tasks are stored with the names of their callers, for operators.
    """

    policy: PromotionPolicy
    polling: PollPolicy
    access: AccessPolicy
    rates: RatePolicies
    caps: Caps
    overrides: Overrides
    questions: QuestionBounds
    handoff: HandoffRules = USUAL_HANDOFF
    reject_as: RejectAs = RejectAs.JSONRPC
    exposes_quota: bool = False
    on_store_error: OnStoreError = OnStoreError.LOCAL
    sessions: CallerLimit = _SESSIONS
    streams: CallerLimit = _STREAMS
    events: EventBounds = USUAL_EVENTS
    in_flight: ByteBounds = USUAL_BYTES
    waits: CallerLimit = _WAITS
    all_waits: int | None = 2048
    names_callers: bool = True


class RuntimeConfig:
    """The holder of the present rules, `current`, which a reload replaces."""

    __slots__ = ("current",)

    def __init__(self, rules: AdmissionRules) -> None:
        self.current = rules
