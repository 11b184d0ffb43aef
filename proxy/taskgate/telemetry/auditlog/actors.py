"""Who did something, as lines tell it. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from taskgate.telemetry.auditlog.events import AuditEvent
from taskgate.telemetry.auditlog.texts import TEXT, shown
from taskgate.telemetry.request_context import Caller

_DEEPEST: Final = 8
"""How many of those who act for each other are told."""


def context(key: str) -> str:
    """The reference of an auth context."""
    return f"c_{key}"


def actor(event: AuditEvent, *, full: bool) -> dict[str, Any] | None:
    """Who it was: whoever asked, else whose task it is; None where nobody is known.

    Without `full` there is the reference alone, and how it was found out.
    """
    caller = event.caller or (None if event.origin is None else event.origin.caller)
    if caller is not None:
        return _asking(caller, full=full)
    owner = None if event.subject is None or event.name == _DENIED else event.subject.owner
    return None if owner is None else {"ctx": context(owner), **_NOBODY}


def _asking(caller: Caller, *, full: bool) -> dict[str, Any]:
    identity = caller.identity
    if identity is None:
        return {"ctx": context(caller.key), **_NOBODY, "method": "none"}
    if not full:
        return {"ctx": context(caller.key), **_NOBODY, "method": "jwt"}
    claims = identity.claims
    return {
        "ctx": context(caller.key),
        "method": "jwt",
        "iss": shown(identity.issuer, TEXT),
        "sub": shown(identity.subject, TEXT),
        "client_id": shown(identity.client_id, TEXT),
        "tenant": shown(identity.tenant, TEXT),
        "jti": shown(claims.get("jti"), TEXT),
        "delegation": list(_acting(claims)) if "act" in claims else [],
    }


def _acting(claims: Mapping[str, Any]) -> Iterator[dict[str, str | None]]:
    """Who acts for the subject, and for whom they do (RFC 8693, section 4.1): the present one first."""
    for _ in range(_DEEPEST):
        acting = claims.get("act")
        if not isinstance(acting, Mapping):
            return
        yield {name: shown(acting.get(name), TEXT) for name in ("iss", "sub", "client_id")}
        claims = acting


_NOBODY: Final[dict[str, Any]] = {
    "method": None,
    "iss": None,
    "sub": None,
    "client_id": None,
    "tenant": None,
    "jti": None,
    "delegation": [],
}
_DENIED: Final = "task.access_denied"
"""Of a task that somebody does not have the owner is known, and is not who asked."""
