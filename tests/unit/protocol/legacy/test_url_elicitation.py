"""What a host of the modern era is asked where a server refuses until somebody has been to a URL."""

import json
from typing import Any

import pytest

from taskgate.domain.versions import LEGACY, Peer, Revision
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.url_elicitation import MOST_SAID, agrees, request_contexts
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.server_messages import Question

VISIT = {"mode": "url", "elicitationId": "e-1", "url": "https://pay.example.com/1", "message": "Pay é"}
BOTH_MODES = {"elicitation": {"form": {}, "url": {}}}


def host(capabilities: dict[str, Any] = BOTH_MODES, revision: Revision = Revision.R2026_07_28) -> Peer:
    return Peer(revision=revision, capabilities=capabilities, info={})


def refused(*named: Any, code: int = -32042, **changes: Any) -> Response:
    error = {"code": code, "message": "Not yet", "data": {"elicitations": list(named)}} | changes
    message = parse(json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


def test_a_host_is_asked_for_every_url_that_the_server_names() -> None:
    other = VISIT | {"elicitationId": "e-2", "url": "https://x.example.com"}
    asked = request_contexts(refused(VISIT, other), host())
    assert [question.method for question in asked] == ["elicitation/create"] * 2
    assert [json.loads(question.params.head) for question in asked if question.params] == [VISIT, other]


def test_what_else_the_server_says_of_a_visit_is_not_passed_on() -> None:
    asked = request_contexts(refused(VISIT | {"task": {"ttl": 1}, "_meta": {"progressToken": 1}}), host())
    assert asked == request_contexts(refused(VISIT), host())
    assert all(isinstance(question, Question) and isinstance(question.params, Params) for question in asked)


def test_a_long_url_is_passed_on_whole() -> None:
    long = VISIT | {"url": "https://x.example.com/" + "a" * 50_000}
    (question,) = request_contexts(refused(long), host())
    assert question.params is not None
    assert json.loads(question.params.head) == long


NO_VISITS = {
    "another error": refused(VISIT, code=-32603),
    "an error of many kilobytes": refused(VISIT | {"message": "m" * MOST_SAID}),
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
    assert request_contexts(response, host()) == ()


def test_an_error_that_names_nothing_asks_nothing() -> None:
    assert request_contexts(refused(), host()) == ()


def test_a_result_asks_nothing() -> None:
    message = parse(b'{"jsonrpc":"2.0","id":1,"result":{"code":-32042}}', max_depth=64)
    assert isinstance(message, Response)
    assert request_contexts(message, host()) == ()


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}, {"elicitation": {"form": {}}}, {"elicitation": 1}])
def test_a_host_that_takes_no_visits_is_not_asked(capabilities: dict[str, Any]) -> None:
    assert request_contexts(refused(VISIT), host(capabilities)) == ()


@pytest.mark.parametrize("peer", [None, *(host(revision=revision) for revision in LEGACY)])
def test_a_host_that_knows_the_error_gets_it(peer: Peer | None) -> None:
    # T-24 is about hosts of the other era alone.
    assert request_contexts(refused(VISIT), peer) == ()


@pytest.mark.parametrize(
    ("answer", "agreed"),
    [
        ('{"result":{"action":"accept"}}', True),
        ('{"result":{"action":"accept","content":{}}}', True),
        ('{"result":{"action":"decline"}}', False),
        ('{"result":{"action":"cancel"}}', False),
        ('{"result":{}}', False),
        ('{"result":["accept"]}', False),
        ('{"error":{"code":-1,"message":"accept"}}', False),
    ],
)
def test_only_an_accepted_visit_is_agreed_to(answer: str, agreed: bool) -> None:
    assert agrees(answer) is agreed
