"""The catalogue of audit events: `KINDS`, one `EventKind` for each.

A kind has its outcomes, their severities, and the members of `data`.

`docs/audit.md` lists the same events, and the JSON Schema of lines is made of them. `mapping` makes
the events. The texts are part of OCSF and ECS lines: changing one changes what security teams have
stored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

VERSION: Final = 1
"""`v` of every line; changes when an existing field changes its meaning, not for additions."""

SUCCESS, FAILURE, DENIED = "success", "failure", "denied"
OUTCOMES: Final = (SUCCESS, FAILURE, DENIED)
"""Done; failed; not allowed."""

INFO, LOW, MEDIUM, HIGH = "info", "low", "medium", "high"
SEVERITIES: Final = (INFO, LOW, MEDIUM, HIGH)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKind:
    """One kind of event.

    `severities` has the severity of each outcome; `members` are the names that `data` may have.
    """

    name: str
    meaning: str
    severities: Mapping[str, str]
    members: tuple[str, ...]

    @property
    def topic(self) -> str:
        """The word before the point, such as `task`."""
        return self.name.partition(".")[0]


def _kind(name: str, meaning: str, *members: str, **severities: str) -> EventKind:
    return EventKind(name=name, meaning=meaning, severities=severities, members=members)


_REQUEST = ("seconds", "messages", "stated_reason", "result")
_SIGNED = ("sink", "seq", "head", "algorithm", "key", "signature")
_OPERATED = ("operator", "left_out", "dry_run", "matched", "cancelled")

KINDS: Final = (
    _kind("gateway.started", "The gateway serves.", "version", "fingerprint", success=INFO),
    _kind("gateway.stopping", "It lets nothing new in.", "version", "fingerprint", success=INFO),
    _kind("gateway.stopped", "It has ended what it could.", "version", "fingerprint", success=INFO),
    _kind("config.loaded", "A configuration was read and is in force.", "fingerprint", "waits", success=INFO),
    _kind("config.rejected", "One was read and not taken.", "fingerprint", "problems", failure=MEDIUM),
    _kind("rpc.call", "A `tools/call` was let in and answered.", *_REQUEST, success=INFO, failure=LOW),
    _kind("rpc.request", "Anything else was let in and answered.", *_REQUEST, "count", success=INFO, failure=LOW),
    _kind("rpc.rejected", "A request was refused, at whatever step.", *_REQUEST, "count", denied=LOW),
    _kind("call.joined", "A call was answered by an earlier one.", success=INFO),
    _kind("auth.accepted", "A token was accepted for the first time.", "issuer", success=INFO),
    _kind("auth.rejected", "A token was not accepted, or there was none.", "issuer", "count", denied=LOW),
    _kind("auth.jwks_refreshed", "An issuer's keys were fetched.", "issuer", "keys", success=INFO),
    _kind("auth.jwks_failed", "They could not be fetched.", "issuer", "keys", failure=MEDIUM),
    _kind("access.refused", "A rule refused an operation.", "rule", denied=LOW),
    _kind("access.shadow_refused", "A rule in shadow would have refused one.", "rule", success=INFO),
    _kind("task.created", "A task is durable and acknowledged.", "adjustment", success=INFO),
    _kind("task.shadow_promoted", "A rule in shadow would have made a task of a call.", success=INFO),
    _kind("task.dispatched", "A task's call left for its server.", "waited_seconds", success=INFO),
    _kind("task.transition", "A task changed its status.", "from", "to", success=INFO),
    _kind("task.input_requested", "A server asks the host of a task.", "key", "kind", success=INFO),
    _kind("task.input_answered", "The host answered or declined.", "key", "kind", success=INFO, failure=INFO),
    _kind("task.input_dropped", "An input request needs no answer any more.", "key", "kind", failure=INFO),
    _kind("task.cancel_requested", "A host or an operator asked for a cancel.",
          "operator", "stated_reason", success=INFO, failure=INFO),
    _kind("task.completed", "A task has a result.", "age_seconds", "result", success=INFO, failure=LOW),
    _kind("task.failed", "A task ended with an error.", "age_seconds", failure=LOW),
    _kind("task.cancelled", "A task was cancelled.", "age_seconds", success=INFO),
    _kind("task.expired", "An unfinished task reached the age of tasks.ttl.max.", failure=LOW),
    _kind("task.result_retrieved", "Its owner was given the outcome.", "delay_seconds", "first", success=INFO),
    _kind("task.recovered", "A task was taken over whose process was gone.", success=LOW),
    _kind("task.purged", "A record was removed after its retention.", "retrieved", success=INFO),
    _kind("task.access_denied", "A task was asked for that the caller does not have.", denied=LOW),
    _kind("limit.rate_rejected", "A rate refused a request.", "count", denied=LOW),
    _kind("limit.shadow_rejected", "A rate in shadow would have refused one.", "count", success=INFO),
    _kind("limit.store_fallback", "The rates that gateways share could not be asked.", "rule", failure=HIGH),
    _kind("limit.concurrency_rejected", "A cap refused something.", "count", denied=LOW),
    _kind("limit.queue_rejected", "A call found no turn at its server.", denied=LOW),
    _kind("limit.ttl_clamped", "A task was given another time to live than was asked.", success=INFO),
    _kind("security.enumeration_suspected", "A caller polls many task ids that it does not own.", denied=HIGH),
    _kind("security.cross_context_access", "A caller asks for a task of another caller.", denied=HIGH),
    _kind("security.excessive_polling", "A caller polls a task far more often than its poll interval.", denied=MEDIUM),
    _kind("security.header_mismatch", "Headers say something else than the body.", "count", denied=MEDIUM),
    _kind("security.auth_bruteforce", "An address sends many tokens that are not accepted.", "count", denied=HIGH),
    _kind("security.input_key_unknown", "A caller answers an input request that does not exist.", denied=MEDIUM),
    _kind("upstream.up", "An upstream became healthy.", success=INFO),
    _kind("upstream.down", "A server is thought not to be well.", failure=MEDIUM),
    _kind("upstream.circuit_opened", "A circuit opened: calls to the upstream are refused.", failure=MEDIUM),
    _kind("upstream.circuit_closed", "A server is used again.", success=INFO),
    _kind("upstream.session_lost", "A server ended a session.", failure=LOW),
    _kind("upstream.restarted", "A program was started after one that ended by itself.", failure=LOW),
    _kind("credential.exchanged", "There is a token for a server.", "seconds", success=INFO),
    _kind("credential.failed", "There is none.", "seconds", failure=MEDIUM),
    _kind("admin.request", "An operator acted, read a payload, or was refused.",
          *_OPERATED, success=INFO, failure=LOW, denied=MEDIUM),
    _kind("audit.chain_started", "A chain begins, or goes on after a restart.", *_SIGNED, success=INFO),
    _kind("audit.checkpoint", "What vouches for the chain up to here.", *_SIGNED, success=INFO),
    _kind("audit.gap", "Lines are missing, or may be.", *_SIGNED, "cause", "lines", "bytes", failure=HIGH),
)  # fmt: skip
"""All events, in the order of `docs/audit.md`."""

EVENTS: Final[Mapping[str, EventKind]] = {kind.name: kind for kind in KINDS}


def matching(globs: Iterable[str]) -> frozenset[str]:
    """The names of the events that match a glob; case counts, and `*` matches a point too."""
    patterns = tuple(globs)
    return frozenset(name for name in EVENTS if any(fnmatchcase(name, each) for each in patterns))
