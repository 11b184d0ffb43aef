"""What servers of the legacy era ask of a host: read, made ready for it, or refused in its name. Pure."""

from typing import Final

from taskgate.domain.record import RequestId
from taskgate.domain.versions import Peer
from taskgate.jsontext.edits import dump, removals, splice, splice_range
from taskgate.jsontext.spans import members
from taskgate.protocol import vocabulary as words
from taskgate.protocol.jsonrpc import error_text, is_id, result_text
from taskgate.protocol.legacy import capabilities
from taskgate.protocol.legacy.native_tasks import related
from taskgate.protocol.messages import Notification, Params, Request, meta_of
from taskgate.protocol.meta import legacy_hop_keys
from taskgate.protocol.server_messages import Answer, ImmediateReply, Question, ReceivedQuestion


def read_question(request: Request, host: Peer | None) -> ReceivedQuestion | ImmediateReply:
    """What the host is to be asked, or the answer that the server gets at once.

    The server's related-task key is cut out, and `task` where the host makes no tasks of such questions (L-HOST-6).
    """
    if request.method == words.PING:
        return ImmediateReply(result_text(request.id, "{}"))
    code, required = capabilities.refusal(host, request.method, request.params), None
    if code is not None:
        required = capabilities.lacking(host, request.method, request.params)
    elif not _is_sound(request):
        code = words.INVALID_PARAMS
    if code is not None:
        return ImmediateReply(error_text(request.id, _error(code, _MESSAGES[code])), required)
    keeps_task = capabilities.hosts_tasks_of(host, request.method)
    meta = meta_of(request.params)
    token = meta.get("progressToken")
    question = Question(request.method, _params(request, keeps_task=keeps_task))
    return ReceivedQuestion(request.id, question, None if token is None else token.value, related(meta))


def answer_text(id: RequestId, answer: Answer) -> str:
    """The response that gives a server its answer, the text of it as it came."""
    found = members(answer)
    if "result" in found:
        return result_text(id, answer[found["result"].start : found["result"].end])
    return error_text(id, answer[found["error"].start : found["error"].end])


def no_answer(method: str) -> Answer:
    """What stands for an answer that nobody gave (L-INPUT-8)."""
    if method == words.ELICITATION_CREATE:
        return '{"result":{"action":"cancel"}}'
    code = words.REFUSED_BY_USER if method == words.SAMPLING_CREATE else words.INTERNAL_ERROR
    return f'{{"error":{_error(code, "Nobody answered")}}}'


def passed_on(notification: Notification, token: RequestId | None) -> str:
    """A host's notification without what the gateway had added, under the server's own token where it has one."""
    meta = meta_of(notification.params)
    edits = removals(meta, legacy_hop_keys(meta))
    place = notification.params.get("progressToken")
    if token is not None and place is not None:
        edits = [*edits, (place.start, place.end, dump(token))]
    return splice(notification.text, edits)


def _is_sound(request: Request) -> bool:
    """Whether its parameters are an object, and so `_meta`, with a token that can be one."""
    if request.params_text and not request.params_text.startswith("{"):
        return False
    meta = request.params.get("_meta")
    if meta is None:
        return True
    token = (meta.members or {}).get("progressToken")
    return meta.members is not None and (token is None or is_id(token.value))


def _params(request: Request, *, keeps_task: bool) -> Params | None:
    if not request.params_text:
        return None
    meta = meta_of(request.params)
    edits = removals(meta, legacy_hop_keys(meta)) + ([] if keeps_task else removals(request.params, ("task",)))
    token = meta.get("progressToken")
    begin, end = request.params_at, request.params_at + len(request.params_text)
    if token is None:
        return Params(splice_range(request.text, begin, end, edits))
    return Params(
        splice_range(request.text, begin, token.start, edits), splice_range(request.text, token.end, end, edits)
    )


def _error(code: int, message: str) -> str:
    return dump({"code": code, "message": message})


_MESSAGES: Final = {words.METHOD_NOT_FOUND: "Method not found", words.INVALID_PARAMS: "Invalid params"}
