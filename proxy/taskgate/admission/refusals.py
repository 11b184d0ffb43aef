"""What a host gets instead of what it asked for: the error's face, and how to be let in where that is the matter.

And what operators are told of it: whether a request was refused, or let in and then failed.

What must not live here: what an error means to a host (`protocol/faults`), and how else a limit may be told (`domain`).
"""

from taskgate.admission.mounts import Mount
from taskgate.admission.rates import OverRate
from taskgate.auth.metadata import challenge, scope_challenge
from taskgate.domain.versions import Era
from taskgate.errors import (
    CutOff,
    GatewayError,
    InsufficientScope,
    MalformedMessage,
    StoreUnavailable,
    TaskAlreadyFinished,
    Unauthenticated,
    UpstreamFailed,
)
from taskgate.protocol.envelope import Message, Request
from taskgate.protocol.faults import fault
from taskgate.protocol.vocabulary import OVER_LIMIT, UNAVAILABLE
from taskgate.streams.exchange import HttpReply

_LET_IN = (UpstreamFailed, StoreUnavailable, CutOff, TaskAlreadyFinished)
_PLAIN_STATUS = {OVER_LIMIT: 429, UNAVAILABLE: 503}


def refusal(error: Exception, mount: Mount, message: Message | None, era: Era = Era.LEGACY) -> tuple[HttpReply, int]:
    """The reply to a message, None where it was not read, that met `error`; and its JSON-RPC code.

    `era` is that of the message, the legacy era until it is known.
    """
    seen = fault(error, era)
    headers = seen.headers + _more_headers(error, mount)
    if isinstance(message, Request):
        return HttpReply(status=seen.status, body=seen.message(message.id), headers=headers), seen.code
    # Without a request there is nobody to read a 200: the status alone must say it.
    status = seen.status if seen.status != 200 else _PLAIN_STATUS.get(seen.code, 400)
    id_ = error.id if isinstance(error, MalformedMessage) else None
    return HttpReply(status=status, body=None if status == 429 else seen.message(id_), headers=headers), seen.code


def _more_headers(error: Exception, mount: Mount) -> tuple[tuple[str, str], ...]:
    match error:
        case Unauthenticated():
            return (("WWW-Authenticate", challenge(mount.metadata, token_sent=error.token_sent, scopes=mount.scopes)),)
        case InsufficientScope():
            return (("WWW-Authenticate", scope_challenge(mount.metadata, error.scopes)),)
        case OverRate():
            return error.quota
    return ()


def refused_for(error: Exception) -> str | None:
    """Why a request was not let do what it asks: the reason of its kind of error, or None where it was let in.

    | met | refused for |
    |---|---|
    | whatever is wrong with the message, its session, its stream or its parameters | its reason |
    | whoever asks: no good token, whatever is wrong with it | unauthenticated |
    | whoever asks: no keys to judge the token, a rule, a scope, the penalty box | its reason |
    | a limit: a rate, a cap, the room there is, the queue of a server | its reason |
    | the gateway drains | draining |
    | the gateway is short of memory | overload |
    | a task that is not the caller's, or is not there | task_not_found |
    | the caller's own task has ended, and cannot be cancelled any more | None |
    | the server failed, answered with an error, or its tool did | None |
    | the store failed, the gateway shut down under a call, or something unforeseen happened | None |
    """
    if not isinstance(error, GatewayError) or isinstance(error, _LET_IN):
        return None
    return type(error).reason
