"""The families about who may use how much, and who may do what; see `catalogue`."""

from typing import Final

from taskgate.telemetry.metrics import labels
from taskgate.telemetry.metrics.families import ALONE, SeriesRoom, beginning, counter, gauge

# --- limits -----------------------------------------------------------------------------------------------------------

RATE_DECISIONS = counter(
    "taskgate_rate_limit_decisions_total",
    "What rate policies said of requests.",
    labels.POLICY,
    labels.RATE_SCOPE,
    labels.DECISION,
    room=SeriesRoom(most=5),
)
IN_USE = gauge(
    "taskgate_concurrency_in_use",
    "Calls in flight to an upstream; over all, unfinished tasks in the store.",
    labels.USE_SCOPE,
    labels.UPSTREAM,
)
LIMIT = gauge(
    "taskgate_concurrency_limit",
    "The most that there may be of them; absent where there is no limit.",
    labels.USE_SCOPE,
    labels.UPSTREAM,
)
CAP_REJECTIONS = counter(
    "taskgate_concurrency_rejections_total",
    "What a cap refused: too many tasks, bytes, sessions, streams or waits.",
    labels.CAP,
    labels.CAP_SCOPE,
)
SATURATED = gauge("taskgate_saturated_contexts", "Callers that are at one of their own caps.")
ACTIVE = gauge("taskgate_active_contexts", "Callers that asked for something in the last five minutes.")
QUEUE_DEPTH = gauge("taskgate_queue_depth", "Calls that wait for a turn at an upstream.", labels.UPSTREAM, room=ALONE)
QUEUE_LIMIT = gauge("taskgate_queue_limit", "The most that may wait there.", labels.UPSTREAM)
QUEUE_REJECTIONS = counter(
    "taskgate_queue_rejections_total",
    "Calls that found no place to wait, or waited for too long.",
    labels.UPSTREAM,
    labels.NO_TURN,
    room=beginning(("full",), ("timeout",)),
)

LIMITS: Final = (
    RATE_DECISIONS, IN_USE, LIMIT, CAP_REJECTIONS, SATURATED, ACTIVE, QUEUE_DEPTH, QUEUE_LIMIT, QUEUE_REJECTIONS,
)  # fmt: skip

# --- who may do what --------------------------------------------------------------------------------------------------

AUTH_REQUESTS = counter(
    "taskgate_auth_requests_total",
    "Requests by what became of their token; `_OTHER` is no configured issuer's, or none.",
    labels.ISSUER,
    labels.JUDGEMENT,
    labels.WHY,
    room=SeriesRoom(kept=frozenset({(True, "ok")}), most=len(labels.WHY.values or ())),
)
TOKEN_CACHE = counter(
    "taskgate_token_cache_lookups_total",
    "Tokens that were looked for among those already found good.",
    labels.TOKEN_CACHE,
    room=beginning(()),
)
KEY_REFRESHES = counter(
    "taskgate_jwks_refreshes_total",
    "Attempts to get an issuer's keys.",
    labels.ISSUER,
    labels.FETCH,
    room=beginning(("ok",), ("stale",), ("failed",)),
)
KEYS = gauge("taskgate_jwks_keys", "Keys of an issuer that are usable.", labels.ISSUER, room=ALONE)
KEYS_FETCHED = gauge(
    "taskgate_jwks_last_success_timestamp_seconds",
    "When an issuer's keys were last got; 0 before the first.",
    labels.ISSUER,
    room=ALONE,
)
ACCESS_REFUSALS = counter(
    "taskgate_access_refusals_total",
    "Operations refused by a rule, or by one in shadow.",
    labels.UPSTREAM,
    labels.METHOD,
    labels.MODE,
    room=SeriesRoom(most=12),
)
SECURITY_EVENTS = counter("taskgate_security_events_total", "Signs of an attack.", labels.SUSPICION, room=beginning(()))
PENALIZED = gauge("taskgate_penalized_contexts", "Callers that may look for no task for a while.")

ACCESS: Final = (
    AUTH_REQUESTS, TOKEN_CACHE, KEY_REFRESHES, KEYS, KEYS_FETCHED, ACCESS_REFUSALS, SECURITY_EVENTS, PENALIZED,
)  # fmt: skip
