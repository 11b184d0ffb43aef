"""The operator's rules that may change while the gateway runs, and the one place that has the present ones.

What must not live here: what a rule means. What holds: the rules change all at once, and whoever asks twice within one
step may be answered by two generations, so a step asks once.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from taskgate.auth.authorization import AccessPolicy
from taskgate.domain.limits import Caps, Overrides
from taskgate.domain.policy import PromotionPolicy
from taskgate.domain.polling import PollPolicy
from taskgate.domain.rates import RatePolicies
from taskgate.streams.bytes_in_flight import USUAL_BOUNDS as USUAL_BYTES
from taskgate.streams.bytes_in_flight import ByteBounds
from taskgate.streams.event_log import USUAL_BOUNDS as USUAL_EVENTS
from taskgate.streams.event_log import EventBounds

MAX_QUESTION: Final = 4 * 1024 * 1024
"""Characters of the parameters of all that one task asks at once: its head, written at every change, has them."""


class QuestionBounds(NamedTuple):
    """How long a question may wait for its answer, and how many of a task or a session may wait at once."""

    wait: timedelta
    outstanding: int


class RejectAs(StrEnum):
    """How a call is told that a limit refuses it."""

    JSONRPC = "jsonrpc"
    """An error of JSON-RPC under HTTP 200, which every released host survives."""
    HTTP = "http"
    """The same error under HTTP 429."""
    TOOL_ERROR = "tool_error"
    """Of `tools/call`: a result with isError, which models get to read; everything else as JSONRPC."""


class OnStoreError(StrEnum):
    """What counts instead of rates that gateways share while their store cannot be asked."""

    LOCAL = "local"
    """Each gateway gives its part of every rate: the rate divided by the number of gateways."""
    OPEN = "open"
    """Every rate has room."""
    CLOSED = "closed"
    """Requests that a rate is for are refused, with code 503."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRules:
    """One generation. `sessions`, `streams` and `waits` are the most that one caller may have open of each.

    `events` is what resumable streams may hold, `in_flight` what large messages may.
    """

    policy: PromotionPolicy
    polling: PollPolicy
    access: AccessPolicy
    rates: RatePolicies
    caps: Caps
    overrides: Overrides
    questions: QuestionBounds
    reject_as: RejectAs = RejectAs.JSONRPC
    exposes_quota: bool = False
    on_store_error: OnStoreError = OnStoreError.LOCAL
    sessions: int = 100
    streams: int = 16
    events: EventBounds = USUAL_EVENTS
    in_flight: ByteBounds = USUAL_BYTES
    waits: int = 64
    all_waits: int | None = 2048


class RuntimeConfig:
    """The rules as they are now."""

    __slots__ = ("now",)

    def __init__(self, rules: AdmissionRules) -> None:
        self.now = rules
