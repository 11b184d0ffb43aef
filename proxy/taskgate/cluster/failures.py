"""Errors on their way to another process, where they are raised again. Pure.

What must not live here: what a host sees of one. What holds: no error takes a cause or a trace along, and one that is
not expected here arrives as an internal one without a word about itself.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from taskgate import errors

_KINDS: Final[Mapping[str, type[errors.GatewayError]]] = {
    kind.__name__: kind
    for kind in (
        errors.CutOff,
        errors.Forbidden,
        errors.InsufficientScope,
        errors.InvalidParams,
        errors.MissingCapability,
        errors.QueueFull,
        errors.RateLimited,
        errors.StoreUnavailable,
        errors.TaskSupportMismatch,
        errors.TooManyBytes,
        errors.TooManyTasks,
        errors.UpstreamFailed,
    )
}
_SPAN: Final = "retry_after"
_SET: Final = "scopes"


def pack(error: Exception) -> dict[str, Any]:
    """An error in plain values."""
    kind = type(error).__name__
    if kind not in _KINDS:
        return {"kind": "", "text": "", "facts": {}}
    facts = dict(vars(error))
    if isinstance(facts.get(_SPAN), timedelta):
        facts[_SPAN] = facts[_SPAN].total_seconds()
    if _SET in facts:
        facts[_SET] = sorted(facts[_SET])
    return {"kind": kind, "text": str(error), "facts": facts}


def unpack(packed: Mapping[str, Any]) -> errors.GatewayError:
    """The error that was packed."""
    kind = _KINDS.get(packed["kind"])
    if kind is None:
        return errors.InternalError()
    error = kind.__new__(kind, packed["text"])
    facts = dict(packed["facts"])
    if isinstance(facts.get(_SPAN), int | float):
        facts[_SPAN] = timedelta(seconds=facts[_SPAN])
    if _SET in facts:
        facts[_SET] = frozenset(facts[_SET])
    vars(error).update(facts)
    return error
