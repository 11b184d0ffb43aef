"""The replies to requests that end in an error, and the reasons that operators are told.

`Gateway` calls `refusal` for each such request, which makes the reply. `protocol/faults` says what
an error means to a host. `refused_for` names the reason for logs. If a limit refused the request,
`RejectionRenderer` then gives the reply another form, if the operator configured one.
"""

from typing import Final

from taskgate.admission.mounts import Mount
from taskgate.admission.rates import RateLimitExceeded
from taskgate.admission.rules import RejectAs, RuntimeConfig
from taskgate.auth.metadata import challenge, scope_challenge
from taskgate.domain.record import RequestId
from taskgate.domain.versions import Era
from taskgate.errors import (
    CutOff,
    GatewayError,
    InsufficientScope,
    MalformedMessage,
    StoreUnavailable,
    TaskAlreadyFinished,
    Unauthenticated,
    UnparsableMessage,
    UpstreamFailed,
)
from taskgate.jsontext.large import MessageText
from taskgate.protocol.faults import fault
from taskgate.protocol.jsonrpc import parse, result_text
from taskgate.protocol.messages import Message, Request, Response
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.vocabulary import OVER_LIMIT, TOOLS_CALL, UNAVAILABLE
from taskgate.streams.exchange import HttpReply

_ADMITTED: Final = (UpstreamFailed, StoreUnavailable, CutOff, TaskAlreadyFinished)
"""Errors of requests that were admitted and failed later; these are no refusals."""
_PLAIN_STATUS: Final = {OVER_LIMIT: 429, UNAVAILABLE: 503}
"""The HTTP status without a request, by the code of an error that would have status 200 with one;
400 for other codes."""
_DEPTH: Final = 16
"""Nesting depth that is enough for a tool error, which the gateway writes itself."""


def refusal(error: Exception, mount: Mount, message: Message | None, era: Era = Era.LEGACY) -> tuple[HttpReply, int]:
    """Return the reply to a message that ended in `error`, and the JSON-RPC code of the error.

    `message` is None if none was read. `era` is that of the message: it decides the HTTP status and
    the codes of some errors.
    """
    meaning = fault(error, era)
    headers = meaning.headers + _more_headers(error, mount)
    if isinstance(message, Request):
        return HttpReply(status=meaning.status, body=meaning.message(message.id), headers=headers), meaning.code
    # Without a request that was read, the HTTP status has to say it, too.
    status = meaning.status if meaning.status != 200 else _PLAIN_STATUS.get(meaning.code, 400)
    if message is None and not isinstance(error, UnparsableMessage | MalformedMessage):
        return HttpReply(status=status, body=meaning.unread_message, headers=headers), meaning.code
    # What was read has no id, or none that could be read (H-HTTP-7).
    id_ = error.id if isinstance(error, MalformedMessage) else None
    return HttpReply(status=status, body=meaning.message(id_), headers=headers), meaning.code


def _more_headers(error: Exception, mount: Mount) -> tuple[tuple[str, str], ...]:
    match error:
        case Unauthenticated():
            # RFC 6750, section 3: nothing is said of an error where no token was sent.
            detail = error.detail if error.token_sent else None
            told = challenge(mount.metadata, token_sent=error.token_sent, scopes=mount.scopes, detail=detail)
            return (("WWW-Authenticate", told),)
        case InsufficientScope():
            return (("WWW-Authenticate", scope_challenge(mount.metadata, error.scopes)),)
        case RateLimitExceeded():
            return error.quota
    return ()


def refused_for(error: Exception) -> str | None:
    """Return the reason why a request was refused; None if it was admitted and failed later.

    "Its reason" is the attribute `reason` of the error.

    | error | reason |
    |---|---|
    | an invalid message, session, stream or parameter | its reason |
    | no valid token | unauthenticated |
    | no keys to verify the token, an access rule, a missing scope, the penalty box | its reason |
    | a limit: a rate, a cap, memory, the queue of a server | its reason |
    | the gateway drains | draining |
    | the gateway is short of memory | overload |
    | a task that is not the caller's, or does not exist | task_not_found |
    | a task of the caller has ended, so that it cannot be cancelled | None |
    | the server failed, or answered with an error, or its tool did | None |
    | the store failed, the gateway shut down during the call, or an unexpected error | None |
    """
    if not isinstance(error, GatewayError) or isinstance(error, _ADMITTED):
        return None
    return type(error).reason


class RejectionRenderer:
    """The renderer of refusals by a limit, in the form that the operator configured (`limits.reject_as`).

    `live` has the present setting. `dialect` writes results for modern hosts.
    """

    def __init__(self, live: RuntimeConfig, dialect: ModernDownstream) -> None:
        self._live = live
        self._dialect = dialect

    def render(self, reply: HttpReply, error: Exception, request: Request, era: Era) -> None:
        """Give the reply to a request that a limit refused the configured form.

        `reply` is the one of `refusal`, and stays as it is by default. It gets HTTP status 429, or a
        tool result with `isError` as its body, if that is configured.
        """
        match self._live.current.reject_as:
            case RejectAs.HTTP:
                reply.status = 429
            case RejectAs.TOOL_ERROR if _accepts_tool_result(request, era):
                reply.body = self._tool_error(request.id, error, era)

    def _tool_error(self, id: RequestId, error: Exception, era: Era) -> MessageText:
        """Return the response with a tool result that tells the error, for a host of `era`."""
        text = result_text(id, fault(error, era).tool_result)
        if era is Era.LEGACY:
            return text
        # For a modern host, `answer` converts it like a server's response. The era that it is
        # given is that of the response, which has the legacy form.
        response = parse(text.encode(), max_depth=_DEPTH)
        assert isinstance(response, Response), "a call with an outcome has a response"
        return self._dialect.answer(id, TOOLS_CALL, response, Era.LEGACY, self._dialect.info)


def _accepts_tool_result(request: Request, era: Era) -> bool:
    """Whether a tool result can answer a request.

    A call that asks for a task is answered with a task or an error, never with a result
    (L-CREATE-4).
    """
    return request.method == TOOLS_CALL and (era is Era.MODERN or "task" not in request.params)
