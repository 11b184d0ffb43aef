"""Rounds: questions in a result, and their answers in the next request, on both sides.

A round is a result `input_required`. It has questions by keys (`inputRequests`), an opaque
`requestState`, or both. Its receiver sends the request again with `inputResponses` and that state.

A round can pass from a modern server to a modern host. Its `requestState` is sealed then
(`domain/request_state.py`), keys of `_meta` that do not cross are removed, and all else stays to
the byte. In all other cases the gateway reads the questions of a server, and makes rounds of its
own for a modern host. Questions and answers have the legacy form inside of taskgate.
"""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final, NamedTuple

from taskgate.domain.record import RequestId
from taskgate.domain.request_state import MAX_PASS_THROUGH
from taskgate.domain.versions import Peer
from taskgate.errors import InvalidParams, MalformedMessage
from taskgate.jsontext.edits import Edits, dump, removals, splice
from taskgate.jsontext.spans import (
    MAX_MEMBERS,
    Member,
    Members,
    RawJson,
    Shape,
    count_members,
    first_keys,
    members,
    read_pairs,
    skip_space,
)
from taskgate.protocol import vocabulary as names
from taskgate.protocol.extensions import Extension, merge_capabilities
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.host_requests import LONG, CallTool, Relay, Retry, sorted_members
from taskgate.protocol.messages import Params, Request, Response, meta_of, value_of
from taskgate.protocol.meta import OWN_PREFIX, ObjectEdit, edit_object, edits_for
from taskgate.protocol.modern.capabilities import DECIDING_PARAMS, missing
from taskgate.protocol.modern.results import without_execution
from taskgate.protocol.server_messages import Answer, Question, ServerRound

ALLOWED_QUESTIONS: Final = frozenset({names.ELICITATION_CREATE, names.SAMPLING_CREATE, names.ROOTS_LIST})
"""The methods of questions in this era."""
MAX_QUESTIONS: Final = 64
"""Largest number of questions in a round: more than any tool asks at once."""
MAX_TOOLS: Final = 1024
"""Largest number of tools of a question that are converted; a longer list passes as it is."""
# The changes of questions from legacy to modern form, and of answers from modern to legacy form.
_ELICITATION: Final = ObjectEdit(drop=("task", "elicitationId", "_meta"))
_OTHER_QUESTION: Final = ObjectEdit(drop=("task",), meta_drop=("progressToken",))
_ANSWER: Final = ObjectEdit(drop=("resultType",))


class Round(NamedTuple):
    """A modern server's response that asks for more; `state` is what it wants back, None if
    nothing.
    """

    state: str | None


# --- the gateway's rounds for hosts -----------------------------------------------------------------------------------


def input_required(requests: Mapping[str, RawJson], state: str | None, info: RawJson) -> RawJson:
    """An InputRequiredResult; `requests` are from `input_request`, by the keys that the host
    answers under.

    There must be a request or a state (M-MRTR-1).
    """
    assert requests or state is not None, "a round needs a question or a state"
    questions = f',"inputRequests":{input_requests(requests)}' if requests else ""
    request_state = "" if state is None else f',"requestState":{dump(state)}'
    meta = f'"_meta":{{{dump(names.SERVER_INFO)}:{info}}}'
    return f'{{"resultType":"input_required"{questions}{request_state},{meta}}}'


def input_requests(requests: Mapping[str, RawJson]) -> RawJson:
    """The object of input requests by key."""
    return f"{{{','.join(f'{dump(key)}:{request}' for key, request in requests.items())}}}"


def input_request(method: str, params: RawJson) -> RawJson:
    """A question in legacy form as an input request (B-CONV-6); `params` may be empty."""
    text = edit_object(params or "{}", _ELICITATION if method == names.ELICITATION_CREATE else _OTHER_QUESTION)
    if method == names.SAMPLING_CREATE:
        text = without_execution(text, MAX_TOOLS)
    return f'{{"method":{dump(method)},"params":{text}}}'


def encode_question(question: Question) -> RawJson:
    """A question as an input request."""
    return input_request(question.method, "" if question.params is None else question.params.with_token(""))


def read_answers(request: Request) -> dict[str, Answer]:
    """The answers in a request, in legacy form (B-CONV-7), by the keys of their questions.

    Raises InvalidParams if they are no object of objects, or if all together have more members than
    one object may have. Raises MalformedMessage for a duplicate key.
    """
    member = request.params.get("inputResponses")
    if member is None:
        return {}
    if not member.is_object:
        raise InvalidParams("inputResponses must be an object")
    text = request.text[member.start : member.end]
    found = members(text)
    if not all(given.is_object for given in found.values()):
        raise InvalidParams("Every input response must be an object")
    answers: dict[str, Answer] = {}
    left = MAX_MEMBERS
    for key, given in found.items():
        answer = text[given.start : given.end]
        inner = members(answer, {"_meta": {}})
        left -= count_members(inner)
        if left < 0:
            raise InvalidParams(f"The input responses have more than {MAX_MEMBERS} members together")
        answers[key] = f'{{"result":{splice(answer, edits_for(inner, 0, _ANSWER))}}}'
    return answers


def is_valid_answer(method: str, answer: Answer) -> bool:
    """Whether an answer from `read_answers` has the members that its question needs (M-MRTR-5).

    `method` is that of the question.
    """
    found = members(answer, {"result": {}})["result"].members or {}
    match method:
        case names.ELICITATION_CREATE:
            return value_of(found, "action") in ["accept", "decline", "cancel"]
        case names.SAMPLING_CREATE:
            content = found.get("content")
            return isinstance(value_of(found, "model"), str) and content is not None and _is_content(content)
    return "roots" in found and found["roots"].is_array


def _is_content(content: Member) -> bool:
    return content.is_object or content.is_array


# --- rounds that pass from a modern server to a modern host -----------------------------------------------------------


def round_of(response: Response) -> Round | None:
    """The round in a response of a modern server; None for any other response, and for a malformed
    round.

    A malformed round has no questions and no state, no map of questions, or a state that is no text
    or too long.
    """
    found = (response.result.members or {}) if response.result is not None else {}
    if "resultType" not in found or found["resultType"].value != "input_required":
        return None
    questions = _input_requests(response.text, found.get("inputRequests"))
    if questions is None:
        return None
    given = value_of(found, "requestState")
    if given is None:
        return Round(None) if questions else None
    state = _valid_state(given)
    return None if state is None else Round(state)


def missing_capabilities(response: Response, host: Peer) -> dict[str, Any]:
    """The capabilities that `host` lacks for the questions of a round (M-MRTR-2); empty if it lacks
    none.
    """
    found = (response.result.members or {}) if response.result is not None else {}
    lacking: dict[str, Any] = {}
    for text in _input_requests(response.text, found.get("inputRequests")) or ():
        question = _pairs(text)
        params = question.get("params")
        inner = {} if params is None else _pairs(text[params.start : params.end])
        deciding = {name: inner[name].value for name in DECIDING_PARAMS if name in inner}
        lacking = merge_capabilities(lacking, missing(host, value_of(question, "method"), deciding))
    return lacking


def passed_round(id: RequestId, response: Response, state: str | None, info: RawJson | None = None) -> str:
    """A round under the host's id, with `state` in place of the server's; None removes it.

    `info` replaces the server's serverInfo; None leaves it.
    """
    assert response.result is not None, "a round is a result"
    put = {} if state is None else {"requestState": dump(state)}
    meta_put = {} if info is None else {names.SERVER_INFO: info}
    change = ObjectEdit(put=put, drop=("requestState",), meta_put=meta_put, keeps_hop=True)
    found = response.result.members or {}
    edits = edits_for(found, response.result.start, change)
    edits += _foreign_key_removals(response.text, found.get("inputRequests"))
    return splice(response.text, [(*response.id_span, dump(id)), *edits])


def _foreign_key_removals(text: str, requests: Member | None) -> Edits:
    """The edits that remove the related-task key and taskgate's own keys from the `_meta` of
    questions.
    """
    if requests is None or not any(key in text for key in (names.RELATED_TASK, OWN_PREFIX)):
        return []
    shape: Shape = {name: {"params": {"_meta": {}}} for name in first_keys(requests, MAX_QUESTIONS) or ()}
    start = requests.start
    edits: Edits = []
    for question in members(text[start : requests.end], shape).values():
        params = (question.members or {}).get("params")
        meta = meta_of(params.members or {}) if params is not None else {}
        gone = {name for name in meta if name == names.RELATED_TASK or name.startswith(OWN_PREFIX)}
        edits += [(start + begin, start + end, by) for begin, end, by in removals(meta, gone)]
    return edits


def with_answers(retry: Retry, state: str | None) -> CallTool | Relay:
    """The request of a retry for its server: with the host's answers as it wrote them.

    `state` is the `requestState` that the server gave; None sends none.
    """
    params = retry.request.params or Params("{}")
    put = [] if retry.responses is None else [f'"inputResponses":{retry.responses}']
    put += [] if state is None else [f'"requestState":{dump(state)}']
    at = params.head.index("{") + 1
    if params.tail is not None or params.head[skip_space(params.head, at)] != "}":
        put.append("")
    return replace(retry.request, params=Params(f"{params.head[:at]}{','.join(put)}{params.head[at:]}", params.tail))


def digest(request: CallTool | Relay) -> str:
    """A SHA-256 digest of the method and parameters of a request, without `_meta`, in hexadecimal.

    A retry must have the digest of the request that it repeats. Order and spacing make no
    difference, except in long parameters, as in `call_digest`.
    """
    method = names.TOOLS_CALL if isinstance(request, CallTool) else request.method
    params = (request.params or Params("{}")).with_token(0)
    texts = {name: params[at.start : at.end] for name, at in members(params).items() if name != "_meta"}
    if sum(map(len, texts.values())) > LONG:
        sizes = sorted((name, len(text)) for name, text in texts.items())
        found = sha256(ascii((method, "long", sizes)).encode())
        for name, _ in sizes:
            found.update(texts[name].encode("utf-8", "surrogatepass"))
        return found.hexdigest()
    content = sorted_members(f"{{{','.join(f'{dump(name)}:{text}' for name, text in texts.items())}}}")
    return sha256(ascii((method, content)).encode()).hexdigest()


def _input_requests(text: str, requests: Member | None) -> list[RawJson] | None:
    """The questions of a round one by one; None for no map of objects, and for too many or too
    large ones.
    """
    if requests is None:
        return []
    keys = first_keys(requests, MAX_QUESTIONS + 1)
    if keys is None or len(keys) > MAX_QUESTIONS:
        return None
    written = text[requests.start : requests.end]
    found = _pairs(written).values()
    if not all(each.is_object for each in found):
        return None
    questions = [written[each.start : each.end] for each in found]
    return None if len(written) > LONG and _are_too_large(questions) else questions


def _are_too_large(questions: list[RawJson]) -> bool:
    """Whether the questions and their parameters have too many members to be read on the event
    loop.
    """
    left = MAX_MEMBERS
    for text in questions:
        try:
            question = dict(read_pairs(text))
            params = question.get("params")
            left -= len(question) + (0 if params is None else len(read_pairs(text[params.start : params.end])))
        except MalformedMessage:
            return True
        if left < 0:
            return True
    return False


def _pairs(text: RawJson) -> Members:
    """The members of an object; of a repeated key, the last."""
    return dict(read_pairs(text))


def _valid_state(state: object) -> str | None:
    """A string of limited length that is valid Unicode; None for anything else."""
    try:
        return state if isinstance(state, str) and len(state.encode()) <= MAX_PASS_THROUGH else None
    except UnicodeEncodeError:
        return None


# --- rounds of modern servers, answered by the gateway ----------------------------------------------------------------

_PARAMS: Final[Shape] = {"params": {"_meta": {}}}


def read_round(method: str, id: int, response: Response, extensions: Mapping[str, Extension]) -> ServerRound | None:
    """The round in a response of a modern server to request `id`; None for a complete result or an
    error.

    `extensions` has the extension of a method, by which its results may have other types. Raises
    UpstreamFailed (malformed) for another `resultType`, for a round where `method` has none, and for
    a round with neither questions nor a state.
    """
    if response.error is not None:
        return None
    assert response.result is not None, "a response without an error has a result"
    found = response.result.members
    if found is None:
        raise protocol_violation("its result is not an object")
    kind = found.get("resultType")
    if kind is None or kind.value == "complete":
        return None
    extension = extensions.get(method)
    if extension is not None and extension.allows_result(kind.value):
        return None
    if kind.value != "input_required" or method not in names.ROUND_METHODS:
        raise protocol_violation("its result has a resultType that the request does not allow")
    questions = read_questions(response.text, found.get("inputRequests"), id)
    state = _read_state(response.text, found.get("requestState"))
    if not questions and state is None:
        raise protocol_violation("it requires input, and has neither input requests nor a requestState")
    return ServerRound(questions, state)


def read_questions(text: str, member: Member | None, id: int) -> dict[str, Question]:
    """The questions of a map of input requests in legacy form, by the server's keys; none without
    a map.

    Raises UpstreamFailed (malformed) for a question that no host can be asked. `id` is the id of a
    request, unique in its session: ids of elicitations by URL are made of it.
    """
    requests = "null" if member is None else text[member.start : member.end]
    if member is None or requests == "null":
        return {}
    keys = first_keys(member, MAX_QUESTIONS + 1)
    if keys is None or len(keys) > MAX_QUESTIONS:
        raise protocol_violation(f"its inputRequests is not an object of at most {MAX_QUESTIONS} keys")
    try:
        entries = members(requests)
        "".join(entries).encode()
        texts = [requests[entry.start : entry.end] for entry in entries.values()]
        questions: dict[str, Question] = {}
        left = MAX_MEMBERS
        for turn, (key, each) in enumerate(zip(entries, texts, strict=True)):
            found = members(each, _PARAMS)
            left -= count_members(found)
            if left < 0:
                raise protocol_violation("its input requests have too many members")
            questions[key] = _read_question(each, found, f"{id}-{turn}")
        return questions
    except (MalformedMessage, UnicodeEncodeError):
        # A duplicate key, or a key that is no valid Unicode.
        raise protocol_violation("a key of its input requests is repeated, or is not valid Unicode") from None


def input_responses(answers: Mapping[str, tuple[Question, Answer]]) -> RawJson | None:
    """The `inputResponses` with the answers, by the server's keys.

    None if one of them has no form in this era (M-MRTR-6): an error, or a result that is no object
    or repeats a key.
    """
    texts = {key: _input_response(question.method, answer) for key, (question, answer) in answers.items()}
    if None in texts.values():
        return None
    return f"{{{','.join(f'{dump(key)}:{text}' for key, text in texts.items())}}}"


def default_answer(question: Question) -> Answer:
    """The answer to a question without a host's answer. Only an elicitation's has a form in this
    era.
    """
    if question.method == names.ELICITATION_CREATE:
        return '{"result":{"action":"cancel"}}'
    return f'{{"error":{dump({"code": names.INTERNAL_ERROR, "message": "Nobody answered"})}}}'


def _read_state(text: str, member: Member | None) -> RawJson | None:
    if member is None or member.value is None:
        return None
    if not isinstance(member.value, str):
        raise protocol_violation("its requestState is not a string")
    return text[member.start : member.end]


def _read_question(text: RawJson, found: Members, elicitation: str) -> Question:
    method, params = value_of(found, "method"), found.get("params")
    if not isinstance(method, str) or method not in ALLOWED_QUESTIONS or not (params is None or params.is_object):
        raise protocol_violation("an input request has an unknown method or invalid params")
    if params is None:
        return Question(method, None)
    # In legacy form, an elicitation by URL has an id (B-CONV-6).
    is_url = method == names.ELICITATION_CREATE and value_of(params.members or {}, "mode") == "url"
    put = {"elicitationId": dump(elicitation)} if is_url else {}
    change = ObjectEdit(put=put, drop=("task",), meta_drop=("progressToken",))
    return Question(method, Params(edit_object(text[params.start : params.end], change)))


def _input_response(method: str, answer: Answer) -> RawJson | None:
    """The modern form of an answer to a question of that method; None if it has none."""
    given = members(answer).get("result")
    if given is None or not given.is_object:
        return None
    drop = ("resultType",) if method == names.SAMPLING_CREATE else ("resultType", "_meta")
    try:
        return edit_object(answer[given.start : given.end], ObjectEdit(drop=drop))
    except MalformedMessage:
        return None
