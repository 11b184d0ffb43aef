"""Rounds that servers of this era ask in: their questions as the legacy era words them, and the answers' way back.

Only shapes; who is asked, and when a request is sent again, is decided elsewhere.
"""

from collections.abc import Mapping
from typing import Any, Final

from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import MAX_MEMBERS, Member, Members, RawJson, Shape, count_members, first_keys, members
from taskgate.protocol import vocabulary as words
from taskgate.protocol.extensions import Extension
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.meta import ObjectEdit, edit_object
from taskgate.protocol.modern.mrtr import ASKED
from taskgate.protocol.server_messages import Answer, Question, ServerRound
from taskgate.protocol.vocabulary import ROUND_METHODS

MAX_QUESTIONS: Final = 64
"""In one round: more than any tool asks at once, and a bound for a mad one."""
_PARAMS: Final[Shape] = {"params": {"_meta": {}}}


def round_of(method: str, id: int, response: Response, extension: Extension | None = None) -> ServerRound | None:
    """What a response asks for; see ModernUpstreamDialect. `extension` is that of the method."""
    if response.error is not None:
        return None
    assert response.result is not None, "a response without an error has a result"
    found = response.result.members
    if found is None:
        raise protocol_violation("its answer is no result")
    kind = found.get("resultType")
    if kind is None or kind.value == "complete" or (extension is not None and extension.allows_result(kind.value)):
        return None
    if kind.value != "input_required" or method not in ROUND_METHODS:
        raise protocol_violation("its answer is of a kind that was not asked for")
    questions = questions_of(response.text, found.get("inputRequests"), id)
    state = _state(response.text, found.get("requestState"))
    if not questions and state is None:
        raise protocol_violation("it asks for nothing")
    return ServerRound(questions, state)


def questions_of(text: str, member: Member | None, id: int) -> dict[str, Question]:
    """The questions of a map of input requests, by the server's keys; none where there is no map.

    UpstreamFailed, reason malformed, for what nobody can be asked. `id` is of a request, and no two have the same.
    """
    requests = "null" if member is None else text[member.start : member.end]
    if member is None or requests == "null":
        return {}
    keys = first_keys(member, MAX_QUESTIONS + 1)
    if keys is None or len(keys) > MAX_QUESTIONS:
        raise protocol_violation("it asks in no form")
    try:
        entries = members(requests)
        "".join(entries).encode()
        texts = [requests[entry.start : entry.end] for entry in entries.values()]
        asked: dict[str, Question] = {}
        left = MAX_MEMBERS
        for turn, (key, each) in enumerate(zip(entries, texts, strict=True)):
            found = members(each, _PARAMS)
            left -= count_members(found)
            if left < 0:
                raise protocol_violation("its questions have too many members")
            asked[key] = _question(each, found, f"{id}-{turn}")
        return asked
    except (MalformedMessage, UnicodeEncodeError):
        # Something stands there twice, or under a key that could not be written again.
        raise protocol_violation("its questions cannot be told apart") from None


def answers(given: Mapping[str, tuple[Question, Answer]]) -> RawJson | None:
    """The answers by the server's keys; None where one of them has no form here (10.2, M-MRTR-6)."""
    told = {key: _answer(question.method, answer) for key, (question, answer) in given.items()}
    if None in told.values():
        return None
    return f"{{{','.join(f'{dump(key)}:{text}' for key, text in told.items())}}}"


def no_answer(question: Question) -> Answer:
    """What stands for an answer that nobody gave."""
    if question.method == words.ELICITATION_CREATE:
        return '{"result":{"action":"cancel"}}'
    return f'{{"error":{dump({"code": words.INTERNAL_ERROR, "message": "Nobody answered"})}}}'


def _state(text: str, member: Member | None) -> RawJson | None:
    if member is None or member.value is None:
        return None
    if not isinstance(member.value, str):
        raise protocol_violation("its requestState is no text")
    return text[member.start : member.end]


def _question(text: RawJson, found: Members, elicitation: str) -> Question:
    method, params = _value(found, "method"), found.get("params")
    if not isinstance(method, str) or method not in ASKED or not (params is None or params.is_object):
        raise protocol_violation("it asks what nobody can be asked")
    if params is None:
        return Question(method, None)
    # In the legacy era a page to visit has a name of its own (B-CONV-6).
    asked = text[params.start : params.end]
    by_url = method == words.ELICITATION_CREATE and _value(params.members or {}, "mode") == "url"
    put = {"elicitationId": dump(elicitation)} if by_url else {}
    change = ObjectEdit(put=put, drop=("task",), meta_drop=("progressToken",))
    return Question(method, Params(edit_object(asked, change)))


def _answer(method: str, answer: Answer) -> RawJson | None:
    given = members(answer).get("result")
    if given is None or not given.is_object:
        return None
    drop = ("resultType",) if method == words.SAMPLING_CREATE else ("resultType", "_meta")
    try:
        return edit_object(answer[given.start : given.end], ObjectEdit(drop=drop))
    except MalformedMessage:
        return None


def _value(found: Mapping[str, Member], name: str) -> Any:
    member = found.get(name)
    return None if member is None else member.value
