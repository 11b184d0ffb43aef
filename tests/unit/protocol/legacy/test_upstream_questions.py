"""Questions of servers: made ready for a host, or answered at once; and what goes back."""

import json
from typing import Any

import pytest

from requirements import covers
from taskgate.domain.versions import Peer, Revision
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Notification, Params
from taskgate.protocol.server_messages import ImmediateReply, Question, ReceivedQuestion, WithdrawnQuestion

DIALECT = LegacyUpstream("1.0", ExtensionPolicy())
TASK = '"io.modelcontextprotocol/related-task":{"taskId":"theirs"}'
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


def hear(method: str, params: str | None = None, *, host: Peer | None = ABLE, id_: str = '"q"') -> Any:
    tail = "" if params is None else f',"params":{params}'
    return DIALECT.decode(f'{{"jsonrpc":"2.0","id":{id_},"method":"{method}"{tail}}}'.encode(), host)


def said(text: str) -> Notification:
    notification = parse(text.encode(), max_depth=64)
    assert isinstance(notification, Notification)
    return notification


@pytest.mark.parametrize(("id_", "read"), [("1", 1), ('"1"', "1"), ('"a\\u0062"', "ab")])
def test_a_question_that_the_host_can_be_asked_is_asked(id_: str, read: Any) -> None:
    params = '{ "message": "Name?",  "requestedSchema": {"a":1,"a":2} }'
    heard = hear("elicitation/create", params, id_=id_)
    assert heard == ReceivedQuestion(read, Question("elicitation/create", Params(params)), None)
    assert type(heard.id) is type(read)


def test_a_question_without_parameters_is_asked_without() -> None:
    assert hear("roots/list") == ReceivedQuestion("q", Question("roots/list", None), None)


@pytest.mark.parametrize(("written", "token"), [("7", 7), ('"t"', "t")])
def test_a_question_is_open_at_the_servers_progress_token(written: str, token: Any) -> None:
    params = f'{{"message":"m","_meta":{{"a":1,"progressToken": {written} }},"z":1}}'
    heard = hear("elicitation/create", params)
    assert heard.progress_token == token
    assert heard.question.params == Params('{"message":"m","_meta":{"a":1,"progressToken": ', ' },"z":1}')


@pytest.mark.parametrize(
    ("params", "ready"),
    [
        (f'{{"_meta":{{{TASK}}},"message":"m"}}', '{"_meta":{},"message":"m"}'),
        (f'{{"_meta":{{"a":1,{TASK}}}}}', '{"_meta":{"a":1}}'),
        (f'{{"_meta":{{{TASK},"progressToken":1,"a":1}}}}', '{"_meta":{"progressToken":9,"a":1}}'),
        (f'{{"_meta":{{"progressToken":1,{TASK}}}}}', '{"_meta":{"progressToken":9}}'),
    ],
)
def test_the_servers_own_related_task_is_cut_out(params: str, ready: str) -> None:
    assert hear("elicitation/create", params).question.params.with_token(9) == ready


def test_a_question_may_say_which_of_the_servers_own_tasks_it_is_for() -> None:
    assert hear("elicitation/create", f'{{"_meta":{{{TASK}}},"message":"m"}}').task == "theirs"
    assert hear("elicitation/create", '{"message":"m"}').task is None


@covers("L-HOST-6")
def test_a_task_is_asked_for_only_where_the_host_makes_tasks_of_such_questions() -> None:
    params = '{"task":{"ttl":1},"_meta":{"progressToken":1},"messages":[]}'
    assert hear("elicitation/create", params).question.params.with_token(2) == params.replace(":1}", ":2}").replace(
        '"ttl":2', '"ttl":1'
    )
    assert hear("sampling/createMessage", params).question.params.with_token(1) == params.replace(
        '"task":{"ttl":1},', ""
    )
    assert hear("sampling/createMessage", '{"_meta":{"progressToken":1},"task":{}}').question.params == Params(
        '{"_meta":{"progressToken":', "}}"
    )


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("elicitation/create", '{"mode":"url"}', -32602),
        ("sampling/createMessage", '{"tools":[]}', -32602),
        ("elicitation/create", "[1]", -32602),
        ("elicitation/create", '{"_meta":[]}', -32602),
        ("elicitation/create", '{"_meta":{"progressToken":null}}', -32602),
        ("elicitation/create", '{"_meta":{"progressToken":1.5}}', -32602),
        ("tasks/list", "{}", -32601),
        ("tools/call", "{}", -32601),
        ("unknown/method", "[]", -32601),
    ],
)
def test_any_other_question_is_refused_at_once(method: str, params: str, code: int) -> None:
    heard = hear(method, params)
    assert isinstance(heard, ImmediateReply)
    reply = json.loads(heard.reply)
    assert (reply["id"], reply["error"]["code"]) == ("q", code)
    assert reply["error"]["message"] == {-32601: "Method not found", -32602: "Invalid params"}[code]


@pytest.mark.parametrize(
    ("method", "params", "required"),
    [
        ("elicitation/create", '{"mode":"url"}', {"elicitation": {"url": {}}}),
        ("sampling/createMessage", '{"tools":[]}', {"sampling": {"tools": {}}}),
        ("elicitation/create", "[1]", None),
        ("tools/call", "{}", None),
    ],
)
def test_what_its_host_did_not_declare_is_told_with_the_refusal(method: str, params: str, required: Any) -> None:
    assert hear(method, params).required == required


@pytest.mark.parametrize("method", ["roots/list", "sampling/createMessage", "elicitation/create", "tasks/get"])
def test_no_question_is_for_a_session_without_a_host(method: str) -> None:
    assert json.loads(hear(method, "{}", host=None).reply)["error"]["code"] == -32601


def test_a_ping_is_answered_whatever_its_parameters() -> None:
    assert hear("ping", "[]", host=None) == ImmediateReply('{"jsonrpc":"2.0","id":"q","result":{}}')


@pytest.mark.parametrize(("written", "id_"), [("7", 7), ('"7"', "7")])
def test_a_withdrawal_names_the_question(written: str, id_: Any) -> None:
    text = f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{written}}}}}'
    heard = DIALECT.decode(text.encode(), ABLE)
    assert heard == WithdrawnQuestion(id_)
    assert isinstance(heard, WithdrawnQuestion)
    assert type(heard.id) is type(id_)


@pytest.mark.parametrize("params", ["{}", '{"requestId":null}', '{"requestId":true}', '{"requestId":1.5}', "[7]"])
def test_a_withdrawal_of_nothing_is_dropped(params: str) -> None:
    text = f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}'
    assert DIALECT.decode(text.encode(), ABLE) is None


@pytest.mark.parametrize("id_", [7, "q"])
def test_an_answer_goes_to_the_server_as_its_sender_wrote_it(id_: Any) -> None:
    result = '{ "action" : "accept", "content": {"n": 1.0, "n": 2} }'
    assert (
        DIALECT.answer(id_, f'{{"result":{result}}}') == f'{{"jsonrpc":"2.0","id":{json.dumps(id_)},"result":{result}}}'
    )
    error = '{"code":-1,"message":"no" ,"data":[1]}'
    assert (
        DIALECT.answer(id_, f'{{ "error": {error}}}') == f'{{"jsonrpc":"2.0","id":{json.dumps(id_)},"error":{error}}}'
    )


@covers("L-INPUT-8")
@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("elicitation/create", {"result": {"action": "cancel"}}),
        ("sampling/createMessage", {"error": {"code": -1, "message": "Nobody answered"}}),
        ("roots/list", {"error": {"code": -32603, "message": "Nobody answered"}}),
        ("tasks/result", {"error": {"code": -32603, "message": "Nobody answered"}}),
    ],
)
def test_there_is_an_answer_where_nobody_gave_any(method: str, answer: dict[str, Any]) -> None:
    assert json.loads(DIALECT.default_answer(method)) == answer


def test_progress_of_a_host_goes_on_under_the_servers_token() -> None:
    text = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"ours","progress":0.50}}'
    assert DIALECT.notification(said(text), 7) == text.replace('"ours"', "7")
    assert DIALECT.notification(said(text), "t") == text.replace("ours", "t")
    assert DIALECT.notification(said(text)) == text


def test_what_the_gateway_had_added_does_not_cross() -> None:
    meta = f'"_meta":{{{TASK},"a":1}}'
    text = f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{meta},"progressToken":1}}}}'
    assert DIALECT.notification(said(text), 2) == text.replace(f"{TASK},", "").replace(
        '"progressToken":1', '"progressToken":2'
    )


def test_a_notification_without_parameters_is_passed_on_as_it_is() -> None:
    text = '{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}'
    assert DIALECT.notification(said(text), 7) == text
    odd = '{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{"_meta":[]}}'
    assert DIALECT.notification(said(odd)) == odd


def test_what_a_host_declared_decides_what_of_it_is_passed_on() -> None:
    changed = said('{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}')
    status = said('{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{}}')
    assert [DIALECT.allows_notification(each, ABLE) for each in (changed, status)] == [False, True]


@pytest.mark.parametrize(
    ("params", "opened"),
    [
        ('{"name":"t"}', '{"_meta":{"progressToken":5},"name":"t"}'),
        (" { } ", ' {"_meta":{"progressToken":5} } '),
        ('{"_meta":{}}', '{"_meta":{"progressToken":5}}'),
        ('{"_meta": { "a":1},"b":2}', '{"_meta": {"progressToken":5, "a":1},"b":2}'),
        ('{"_meta":{"progressToken":"x"}}', '{"_meta":{"progressToken":5}}'),
        ('{"_meta":null}', '{"_meta":null}'),
        ('{"_meta":{},"_meta":{}}', '{"_meta":{},"_meta":{}}'),
        ('{"_meta":{"a":1,"a":2}}', '{"_meta":{"a":1,"a":2}}'),
        ("null", "null"),
    ],
)
def test_parameters_are_opened_for_a_token(params: str, opened: str) -> None:
    assert DIALECT.with_token_slot(params).with_token(5) == opened


def test_a_handshake_declares_what_the_host_did() -> None:
    told = json.loads(DIALECT.handshake(1, ABLE))["params"]["capabilities"]
    assert told == dict(ABLE.capabilities)
