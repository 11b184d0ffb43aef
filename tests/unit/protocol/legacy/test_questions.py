"""Questions of servers and their answers cross the gateway in both directions."""

import json
from typing import Any

import pytest

from helpers.schema import RELATED_TASK
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import dump
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.faults import fault
from taskgate.protocol.host_requests import AnswerInput
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.questions import (
    MAX_ERROR,
    read_answer,
    url_questions,
)
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Response

# --- answers of hosts -------------------------------------------------------------------------------------------------


TASK = "7Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c"
KEY = "input-1"
INPUT = f"{TASK}.{KEY}"
OURS = f'"{RELATED_TASK}":{{"taskId":"{TASK}"}}'


def response(id_: str | int, body: str) -> Response:
    message = parse(f'{{"jsonrpc":"2.0","id":{dump(id_)},{body}}}'.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


# --- answers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", ["null", "[]", "7", '"x"', "true"])
@pytest.mark.parametrize("id_", [INPUT, "q-1"])
def test_a_result_that_is_no_object_is_refused_without_an_id(id_: str, result: str) -> None:
    with pytest.raises(MalformedMessage, match=r"^The result must be an object$") as refusal:
        read_answer(response(id_, f'"result":{result}'))
    assert refusal.value.id is None
    assert fault(refusal.value).status == 400


def test_a_very_long_answer_is_whole() -> None:
    text = "é" * 100_000
    answer = read_answer(response(INPUT, f'"result":{{"content":{{"a":"{text}"}},"_meta":{{{OURS}}}}}'))
    assert answer == AnswerInput(task=TASK, key=KEY, answer=f'{{"result":{{"content":{{"a":"{text}"}},"_meta":{{}}}}}}')


# --- URLs -------------------------------------------------------------------------------------------------------------


VISIT = {"mode": "url", "elicitationId": "e-1", "url": "https://pay.example.com/1", "message": "Pay é"}
BOTH_MODES = {"elicitation": {"form": {}, "url": {}}}


def host(capabilities: dict[str, Any] = BOTH_MODES, revision: Revision = Revision.R2026_07_28) -> Peer:
    return Peer(revision=revision, capabilities=capabilities, info={})


def refused(*named: Any, code: int = -32042, **changes: Any) -> Response:
    error = {"code": code, "message": "Not yet", "data": {"elicitations": list(named)}} | changes
    message = parse(json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


def test_a_long_url_is_passed_on_whole() -> None:
    long = VISIT | {"url": "https://x.example.com/" + "a" * 50_000}
    (question,) = url_questions(refused(long), host())
    assert question.params is not None
    assert json.loads(question.params.head) == long


NO_VISITS = {
    "another error": refused(VISIT, code=-32603),
    "an error of many kilobytes": refused(VISIT | {"message": "m" * MAX_ERROR}),
    "no data": refused(data=None),
    "data that is no object": refused(data=[VISIT]),
    "no list": refused(data={"elicitations": {"0": VISIT}}),
    "a form": refused(VISIT | {"mode": "form"}),
    "no mode": refused({name: VISIT[name] for name in VISIT if name != "mode"}),
    "no id": refused({name: VISIT[name] for name in VISIT if name != "elicitationId"}),
    "an id that is no text": refused(VISIT | {"elicitationId": 1}),
    "no url": refused(VISIT | {"url": None}),
    "no message": refused(VISIT | {"message": None}),
    "no object": refused("https://pay.example.com/1"),
    "a form after a visit": refused(VISIT, VISIT | {"mode": "form"}),
    "a lone surrogate": refused(VISIT | {"message": "\ud800"}),
}


@pytest.mark.parametrize("response", NO_VISITS.values(), ids=NO_VISITS)
def test_an_error_that_is_not_all_visits_is_for_the_host_as_it_is(response: Response) -> None:
    assert url_questions(response, host()) == ()


DIALECT = LegacyUpstream("1.0", ExtensionPolicy())


ABLE = Peer(
    revision=Revision.R2025_11_25,
    capabilities={
        "roots": {},
        "sampling": {},
        "elicitation": {"form": {}},
        "tasks": {"requests": {"elicitation": {"create": {}}}},
    },
    info={},
)


def test_a_handshake_declares_what_the_host_did() -> None:
    told = json.loads(DIALECT.handshake(1, ABLE))["params"]["capabilities"]
    assert told == dict(ABLE.capabilities)
