"""How requests are told that a limit refuses them, where the operator wants that told in another way than as an error.

What must not live here: which errors are of limits, and what they say (`protocol/faults`).
"""

from taskgate.admission.rules import RejectAs, RuntimeConfig
from taskgate.domain.record import RequestId
from taskgate.domain.versions import Era
from taskgate.protocol.envelope import Request, Response
from taskgate.protocol.faults import fault
from taskgate.protocol.jsonrpc import parse, result_text
from taskgate.protocol.modern_requests import ModernDialect
from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.streams.exchange import HttpReply

_DEPTH = 16


class Rejections:
    """Retells them."""

    def __init__(self, live: RuntimeConfig, dialect: ModernDialect) -> None:
        self._live = live
        self._dialect = dialect

    def retold(self, reply: HttpReply, error: Exception, request: Request, era: Era) -> HttpReply:
        """The reply to a request that met a limit, as the rules want it; `reply` is the usual one."""
        match self._live.now.reject_as:
            case RejectAs.HTTP:
                return reply._replace(status=429)
            case RejectAs.TOOL_ERROR if _takes_a_result(request, era):
                return reply._replace(body=self._result(request.id, error, era))
        return reply

    def _result(self, id: RequestId, error: Exception, era: Era) -> str:
        text = result_text(id, fault(error, era).tool_result)
        if era is Era.LEGACY:
            return text
        # What the other era is told besides is what it is told of any result.
        response = parse(text.encode(), max_depth=_DEPTH)
        assert isinstance(response, Response), "a call with an outcome has a response"
        return self._dialect.answer(id, TOOLS_CALL, response, Era.LEGACY, self._dialect.info)


def _takes_a_result(request: Request, era: Era) -> bool:
    """Whether a request may be answered with a result of a tool: none that asks for a task may (L-CREATE-4)."""
    return request.method == TOOLS_CALL and (era is Era.MODERN or "task" not in request.params)
