"""Events about who asks and what they may; see `telemetry.events`, which everybody else takes them from."""

from dataclasses import dataclass
from typing import NamedTuple

from taskgate.telemetry.request_context import Caller


class TokenJudged(NamedTuple):
    """A token was accepted, or a request was not for want of a good one.

    `reason` is ok, an AuthReason or jwks_unavailable; `issuer` is the operator's name of it, or `_OTHER`. `known` tells
    whether it was found good before and remembered; None where it was never looked for there. `caller` is whose it is.
    """

    issuer: str
    reason: str
    known: bool | None = None
    caller: Caller | None = None


@dataclass(frozen=True, slots=True)
class KeysFetched:
    """An attempt to get an issuer's keys ended; `keys` is how many are usable now.

    `result` is ok, stale (none came, and the last ones serve on) or failed (none came, and there are none).
    """

    issuer: str
    result: str
    keys: int


@dataclass(frozen=True, slots=True)
class AccessRefused:
    """A rule refused an operation, or would have if it were not in shadow.

    `rule` is the operator's name of it; None where there is no rule, and what no rule allows is refused. `tool` is the
    one that the operation is about.
    """

    mount: str
    method: str
    shadow: bool
    rule: str | None = None
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class SuspicionRaised:
    """Somebody behaves as an attacker would; told once for each that is noticed, not for each request.

    `kind` is enumeration_suspected (looks for many tasks that it does not have), cross_context_access (asks for
    somebody else's), excessive_polling, header_mismatch (headers say something else than the body), auth_bruteforce
    (many tokens that are not accepted) or input_key_unknown (answers what was never asked).
    """

    kind: str
    mount: str


@dataclass(frozen=True, slots=True)
class OperatorAsked:
    """Somebody used what the operators' listener keeps for those with its token; `status` is what they were told."""

    verb: str
    path: str
    status: int
    address: str
