"""Rounds of questions and answers in this era: input requests in a result, their answers in the next request.

Here questions of servers of the legacy era take this era's form, and answers to them theirs. Only shapes; which
questions are open, and what `requestState` holds, is decided elsewhere.
"""

from collections.abc import Mapping
from typing import Final

from taskgate.errors import InvalidParams
from taskgate.jsontext.edits import dump, splice
from taskgate.jsontext.spans import MAX_MEMBERS, Member, RawJson, count_members, members
from taskgate.protocol import vocabulary as words
from taskgate.protocol.messages import Request, value_of
from taskgate.protocol.meta import ObjectEdit, edit_object, edits_for
from taskgate.protocol.modern.tools import without_execution
from taskgate.protocol.server_messages import Answer, Question

ASKED: Final = frozenset({words.ELICITATION_CREATE, words.SAMPLING_CREATE, words.ROOTS_LIST})
"""What hosts of this era can be asked: nothing of tasks of their own."""

MOST_TOOLS: Final = 1024
"""Tools of one question that are looked at; a longer list crosses as it is."""
_ELICITATION: Final = ObjectEdit(drop=("task", "elicitationId", "_meta"))
_OTHER: Final = ObjectEdit(drop=("task",), meta_drop=("progressToken",))
_ANSWER: Final = ObjectEdit(drop=("resultType",))


def input_required(requests: Mapping[str, RawJson], state: str | None, info: RawJson) -> RawJson:
    """An InputRequiredResult; `requests` are of `input_request`, by the keys that the host answers under.

    There must be a request or a state (M-MRTR-1).
    """
    assert requests or state is not None, "a host that is told nothing cannot go on"
    asked = f',"inputRequests":{input_requests(requests)}' if requests else ""
    held = "" if state is None else f',"requestState":{dump(state)}'
    return f'{{"resultType":"input_required"{asked}{held},"_meta":{{{dump(words.SERVER_INFO)}:{info}}}}}'


def input_requests(requests: Mapping[str, RawJson]) -> RawJson:
    """The map of input requests by their keys."""
    return f"{{{','.join(f'{dump(key)}:{request}' for key, request in requests.items())}}}"


def input_request(method: str, params: RawJson) -> RawJson:
    """A question of a server of the legacy era, as this era writes it (B-CONV-6); `params` may be empty."""
    text = edit_object(params or "{}", _ELICITATION if method == words.ELICITATION_CREATE else _OTHER)
    if method == words.SAMPLING_CREATE:
        text = without_execution(text, MOST_TOOLS)
    return f'{{"method":{dump(method)},"params":{text}}}'


def question_request(question: Question) -> RawJson:
    """The same of a question that is on its way."""
    return input_request(question.method, "" if question.params is None else question.params.with_token(""))


def answers(request: Request) -> dict[str, Answer]:
    """What a request answers, as responses of the legacy era (B-CONV-7), by the keys it was asked under.

    Raises InvalidParams for what is no map of objects, or has more members in all of those than one object may have.
    Raises MalformedMessage where a key stands twice.
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
    told: dict[str, Answer] = {}
    left = MAX_MEMBERS
    for key, given in found.items():
        answer = text[given.start : given.end]
        inner = members(answer, {"_meta": {}})
        left -= count_members(inner)
        if left < 0:
            raise InvalidParams(f"The input responses have more than {MAX_MEMBERS} members together")
        told[key] = f'{{"result":{splice(answer, edits_for(inner, 0, _ANSWER))}}}'
    return told


def fits(method: str, answer: Answer) -> bool:
    """Whether an answer has what one to that question needs (M-MRTR-5), as far as its server could not go on without.

    `answer` is one of `answers`.
    """
    found = members(answer, {"result": {}})["result"].members or {}
    match method:
        case words.ELICITATION_CREATE:
            return value_of(found, "action") in ["accept", "decline", "cancel"]
        case words.SAMPLING_CREATE:
            content = found.get("content")
            return isinstance(value_of(found, "model"), str) and content is not None and _is_content(content)
    return "roots" in found and found["roots"].is_array


def _is_content(content: Member) -> bool:
    return content.is_object or content.is_array
