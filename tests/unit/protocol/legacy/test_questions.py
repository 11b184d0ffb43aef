"""Questions of servers and their answers cross the gateway in both directions."""

import json
from typing import Any

import pytest

from helpers.schema import RELATED_TASK, check_definition, check_server_message
from requirements import covers
from taskgate.domain.record import InputRequest
from taskgate.domain.versions import LEGACY, Peer, Revision
from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import dump
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.faults import fault
from taskgate.protocol.host_requests import AnswerInput, AnswerQuestion, Ignore, NotifyServer, ReportProgress
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.legacy.questions import (
    MAX_ERROR,
    encode_input_request,
    encode_notification,
    encode_progress,
    encode_question,
    encode_withdrawal,
    input_id,
    input_of,
    is_accepted,
    read_answer,
    read_notification,
    settled_task,
    url_questions,
    wants_task,
)
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Notification, Params, Response
from taskgate.protocol.server_messages import ImmediateReply, Question, ReceivedQuestion, WithdrawnQuestion

# --- answers of hosts -------------------------------------------------------------------------------------------------


TASK = "7Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c"
OTHER = "8Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c"
KEY = "input-1"
INPUT = f"{TASK}.{KEY}"
OURS = f'"{RELATED_TASK}":{{"taskId":"{TASK}"}}'
ODD = r'"action" : "accept","content":{"a":"\u00e9\/","a":12345678901234567890123,"b":1e999}'


def response(id_: str | int, body: str) -> Response:
    message = parse(f'{{"jsonrpc":"2.0","id":{dump(id_)},{body}}}'.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


def notification(text: str) -> Notification:
    message = parse(text.encode(), max_depth=64)
    assert isinstance(message, Notification)
    return message


def note(method: str, params: str | None = None) -> Notification:
    tail = "" if params is None else f',"params":{params}'
    return notification(f'{{"jsonrpc":"2.0","method":"{method}"{tail}}}')


# --- answers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["input-1", "input-9", "input-10", "input-120"])
def test_the_id_of_an_input_tells_its_task_and_its_key(key: str) -> None:
    assert input_of(input_id(TASK, key)) == (TASK, key)
    assert read_answer(response(input_id(TASK, key), '"result":{}')) == AnswerInput(
        task=TASK, key=key, answer='{"result":{}}'
    )


NO_INPUTS = [
    "q-1",
    "",
    TASK,
    f"{TASK}.",
    f"{TASK}.input-",
    f"{TASK}.input-0",
    f"{TASK}.input-01",
    f"{TASK}.input-1x",
    f"{TASK}.input-1\n",
    f"{TASK}.input-\N{ARABIC-INDIC DIGIT ONE}",
    f"{TASK}.Input-1",
    f"{TASK}xinput-1",
    f"{TASK[1:]}.input-1",
    f"x{TASK}.input-1",
    f" {TASK}.input-1",
    f"{TASK[:-1]}é.input-1",
]


@pytest.mark.parametrize("id_", NO_INPUTS)
def test_any_other_text_is_the_id_of_a_question_of_no_task(id_: str) -> None:
    assert read_answer(response(id_, '"result":{}')) == AnswerQuestion(id=id_, answer='{"result":{}}')
    assert input_of(id_) is None


@pytest.mark.parametrize("body", ['"result":{}', '"result":[]', '"result":7', '"error":{"code":-1,"message":"no"}'])
@pytest.mark.parametrize("id_", [0, 1, -5])
def test_nothing_was_asked_under_a_number(id_: int, body: str) -> None:
    assert read_answer(response(id_, body)) == Ignore()


BODIES = {
    "a result": f'"result":{{ {ODD} }}',
    "an empty result": '"result":{ }',
    "an error": r'"error":{ "message":"\u00e9", "code":-1,"data":{"a":1,"a":[1e999]} }',
    "another _meta": f'"result":{{{ODD},"_meta" : {{ "a/b" : 1.50 }} }}',
    "a _meta that is none": f'"result":{{"_meta":["{RELATED_TASK}"],{ODD}}}',
    "the host's own task": f'"result":{{"_meta":{{"{RELATED_TASK}": {{"taskId":"{OTHER}"}}}},"task":{{}}}}',
    "a related task that is none": f'"result":{{"_meta":{{"{RELATED_TASK}": "{TASK}"}}}}',
    "the key elsewhere": f'"result":{{"content":{{"_meta":{{{OURS}}}}},{OURS}}}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("id_", [INPUT, "q-1"])
def test_an_answer_is_the_hosts_text_to_the_byte(id_: str, body: str) -> None:
    intent = read_answer(response(id_, body))
    assert not isinstance(intent, Ignore)
    assert intent.answer == f"{{{body}}}"


@pytest.mark.parametrize("before", [False, True], ids=["id first", "id last"])
def test_the_place_of_an_answer_in_its_message_does_not_matter(before: bool) -> None:
    meta = f'"result" : {{"_meta": {{{OURS} , "k":1}} , {ODD} }}'
    id_ = f'"id":"{INPUT}"'
    parts = [meta, id_] if before else [id_, meta]
    message = parse(f' {{ {parts[0]},\n"jsonrpc":"2.0", {parts[1]} }} '.encode(), max_depth=64)
    assert isinstance(message, Response)
    assert read_answer(message) == AnswerInput(
        task=TASK, key=KEY, answer=f'{{"result":{{"_meta": {{"k":1}} , {ODD} }}}}'
    )


STRIPPED = {
    "alone": (f'{{"_meta":{{{OURS}}},{ODD}}}', f'{{"_meta":{{}},{ODD}}}'),
    "first": (f'{{{ODD},"_meta":{{ {OURS} , "k" : 1 }} }}', f'{{{ODD},"_meta":{{ "k" : 1 }} }}'),
    "last": (f'{{{ODD},"_meta":{{ "k" : 1 , {OURS} }} }}', f'{{{ODD},"_meta":{{ "k" : 1 }} }}'),
    "spelt in another way": (
        f'{{"_meta":{{"io.modelcontextprotocol\\/related-task":{{"x":1,"taskId":"{TASK}"}},"k":1}}}}',
        '{"_meta":{"k":1}}',
    ),
}


@pytest.mark.parametrize(("result", "left"), STRIPPED.values(), ids=STRIPPED)
def test_the_key_of_our_task_is_not_for_the_server(result: str, left: str) -> None:
    # L-INPUT-5.
    assert read_answer(response(INPUT, f'"result":{result}')) == AnswerInput(
        task=TASK, key=KEY, answer=f'{{"result":{left}}}'
    )


def test_an_answer_about_no_task_of_ours_keeps_the_key_of_the_hosts_own() -> None:
    # L-HOST-3: it may be the host's answer to the server's own `tasks/result`.
    result = f'{{"action":"decline","_meta":{{{OURS}}}}}'
    assert read_answer(response("q-1", f'"result":{result}')) == AnswerQuestion(
        id="q-1", answer=f'{{"result":{result}}}'
    )
    check_definition(json.loads(result), "ElicitResult")


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


# --- what a host tells its server ----------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [INPUT, "q-1", "", "é"])
def test_progress_under_a_text_is_of_what_was_asked_under_it(token: str) -> None:
    told = note("notifications/progress", f'{{"progress":1.50,"progressToken":{dump(token)}}}')
    assert read_notification(told) == ReportProgress(id=token, notification=told)


@pytest.mark.parametrize("token", ["1", "null", "true", "{}", '["q-1"]', "1.5", r'"\ud800"', f'"{"x" * 257}"'])
def test_progress_under_anything_else_is_of_nothing_that_was_asked(token: str) -> None:
    assert read_notification(note("notifications/progress", f'{{"progress":1,"progressToken":{token}}}')) == Ignore()


@pytest.mark.parametrize("params", [None, "{}", "[]", '"q-1"'])
def test_progress_without_a_token_is_of_nothing(params: str | None) -> None:
    assert read_notification(note("notifications/progress", params)) == Ignore()


@pytest.mark.parametrize("params", [None, "{}", '{"taskId":"t","status":"working"}'])
@pytest.mark.parametrize("method", ["notifications/roots/list_changed", "notifications/tasks/status"])
def test_news_of_a_host_are_for_its_server(method: str, params: str | None) -> None:
    # L-HOST-4.
    assert read_notification(note(method, params)) == NotifyServer(notification=note(method, params))


@pytest.mark.parametrize("params", ["[]", "null", "7", '"x"'])
@pytest.mark.parametrize("method", ["notifications/roots/list_changed", "notifications/tasks/status"])
def test_news_with_params_that_are_no_object_are_dropped(method: str, params: str) -> None:
    assert read_notification(note(method, params)) == Ignore()


DROPPED = ["initialized", "message", "tools/list_changed", "elicitation/complete", "resources/updated", "x", ""]


@pytest.mark.parametrize("name", DROPPED)
def test_any_other_notification_of_a_host_is_dropped(name: str) -> None:
    assert read_notification(note(f"notifications/{name}", '{"progressToken":"q-1"}')) == Ignore()


# --- tasks of hosts ---------------------------------------------------------------------------------------------------


KEPT_INPUT = f"{'t' * 32}.input-1"
HANDLE = '"result":{"task":{"taskId":"theirs","status":"working"}}'


def deferred_to(body: str) -> str | None:
    """What task an answer is the handle of."""
    message = parse(f'{{"jsonrpc":"2.0","id":{dump(KEPT_INPUT)},{body}}}'.encode(), max_depth=64)
    assert isinstance(message, Response)
    answer = read_answer(message)
    assert isinstance(answer, AnswerInput)
    return answer.host_task


@pytest.mark.parametrize(
    ("body", "task"),
    [
        (HANDLE, "theirs"),
        ('"result":{"task":{"taskId":""}}', ""),
        ('"result":{"task":{"taskId":7}}', None),
        ('"result":{"task":{}}', None),
        ('"result":{"task":"theirs"}', None),
        ('"result":{"taskId":"theirs"}', None),
        ('"result":{}', None),
        ('"error":{"code":-1,"message":"no","data":{"task":{"taskId":"theirs"}}}', None),
    ],
)
def test_a_handle_is_told_by_its_shape(body: str, task: str | None) -> None:
    assert deferred_to(body) == task


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ('{"task":{}}', True),
        ('{"task":{"ttl":1},"x":1}', True),
        ('{"task":null}', False),
        ('{"x":{}}', False),
        ("", False),
    ],
)
def test_a_task_of_the_hosts_is_asked_for_by_an_object(params: str, wanted: bool) -> None:
    assert wants_task(params) is wanted
    assert LegacyDownstream("1").wants_task(params) is wanted


ID, RESULT, ERROR = '{"taskId":"theirs"}', '{"result":{}}', '{"error":{"code":1,"message":"m"}}'
LAST = [
    ("tasks/result", ID, RESULT),
    ("tasks/result", ID, ERROR),
    ("tasks/cancel", ID, '{"result":{"status":"cancelled"}}'),
    ("tasks/get", ID, '{"result":{"status":"cancelled"}}'),
    ("tasks/get", ID, '{"result":{"status":"failed"}}'),
]
NOT_LAST = [
    ("tasks/result", '{"taskId":7}', RESULT),
    ("tasks/result", "{}", RESULT),
    ("tasks/cancel", ID, ERROR),
    ("tasks/cancel", ID, '{"result":{"status":"working"}}'),
    ("tasks/get", ID, '{"result":{"status":"completed"}}'),
    ("tasks/get", ID, '{"result":[]}'),
    ("tasks/list", ID, RESULT),
    ("elicitation/create", ID, RESULT),
]


@pytest.mark.parametrize(("method", "params", "answer"), LAST)
def test_a_server_needs_no_more_once_it_has_the_last_word(method: str, params: str, answer: str) -> None:
    assert settled_task(method, params, answer) == "theirs"
    assert LegacyDownstream("1").settled_task(method, params, answer) == "theirs"


@pytest.mark.parametrize(("method", "params", "answer"), NOT_LAST)
def test_any_other_answer_leaves_it_waiting(method: str, params: str, answer: str) -> None:
    assert settled_task(method, params, answer) is None


# --- to hosts ---------------------------------------------------------------------------------------------------------


FORM = '{"message":"\\u00e9?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}'


# --- questions -----------------------------------------------------------------------------------------------------

TOKENED = Params('{"_meta":{ "progressToken" : ', f' }},"mode":"form",{FORM[1:]}')
SAMPLE = '{"messages":[{"role":"user","content":{"type":"text","text":"\\u00e9"}}],"maxTokens":5}'

QUESTIONS: dict[str, tuple[Question, str]] = {
    "without params": (Question("roots/list", None), ""),
    "without a token": (Question("sampling/createMessage", Params(SAMPLE)), f',"params":{SAMPLE}'),
    "with a token": (
        Question("elicitation/create", TOKENED),
        f',"params":{{"_meta":{{ "progressToken" : "q-1" }},"mode":"form",{FORM[1:]}',
    ),
    "with a url": (
        Question(
            "elicitation/create", Params('{"mode":"url","elicitationId":"e","url":"https://a.example","message":"m"}')
        ),
        ',"params":{"mode":"url","elicitationId":"e","url":"https://a.example","message":"m"}',
    ),
    "about the host's own task": (Question("tasks/get", Params('{"taskId":"t"}')), ',"params":{"taskId":"t"}'),
}


@pytest.mark.parametrize(("question", "tail"), QUESTIONS.values(), ids=QUESTIONS)
def test_a_question_is_asked_under_our_id_which_is_its_token_too(question: Question, tail: str) -> None:
    text = encode_question("q-1", question)
    assert text == f'{{"jsonrpc":"2.0","id":"q-1","method":"{question.method}"{tail}}}'
    check_server_message(text, request_method=None)


RELATED: dict[str, tuple[str, str, str]] = {
    "without params": ("roots/list", "", f'{{"_meta":{{{OURS}}}}}'),
    "with empty params": ("roots/list", "{ }", f'{{"_meta":{{{OURS}}} }}'),
    "without _meta": ("elicitation/create", FORM, f'{{"_meta":{{{OURS}}},{FORM[1:]}'),
    "with a token": (
        "elicitation/create",
        f'{{"_meta":{{ "progressToken":"{INPUT}" }},{FORM[1:]}',
        f'{{"_meta":{{{OURS}, "progressToken":"{INPUT}" }},{FORM[1:]}',
    ),
    "with the key of another": (
        "sampling/createMessage",
        f'{{"_meta":{{"k":1,"{RELATED_TASK}": {{"taskId":"{OTHER}"}} }},{SAMPLE[1:]}',
        f'{{"_meta":{{"k":1,"{RELATED_TASK}": {{"taskId":"{TASK}"}} }},{SAMPLE[1:]}',
    ),
    "as a task of the host's own": (
        "sampling/createMessage",
        f'{{"task":{{"ttl":5}},{SAMPLE[1:]}',
        f'{{"_meta":{{{OURS}}},"task":{{"ttl":5}},{SAMPLE[1:]}',
    ),
}


@pytest.mark.parametrize(("method", "params", "told"), RELATED.values(), ids=RELATED)
def test_an_input_request_is_related_to_its_task(method: str, params: str, told: str) -> None:
    # L-INPUT-2, L-HOST-5, T23.
    text = encode_input_request(TASK, InputRequest(key=KEY, method=method, params=params))
    assert text == f'{{"jsonrpc":"2.0","id":"{INPUT}","method":"{method}","params":{told}}}'
    check_server_message(text, request_method="tasks/result")


def test_the_withdrawal_of_a_question_names_it() -> None:
    text = encode_withdrawal("q-1", 'No "é" any more')
    assert json.loads(text) == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": "q-1", "reason": 'No "é" any more'},
    }
    check_server_message(text, request_method=None)


def test_the_withdrawal_of_an_input_names_its_task_too() -> None:
    # L-META-1.
    text = encode_withdrawal(INPUT, "gone")
    assert json.loads(text)["params"] == {
        "requestId": INPUT,
        "reason": "gone",
        "_meta": {RELATED_TASK: {"taskId": TASK}},
    }
    check_server_message(text, request_method="tasks/result")


# --- progress and news of a server ---------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [0, 7, "", "é"])
@pytest.mark.parametrize(("message", "said"), [("", {}), ("3/10: é", {"message": "3/10: é"})])
def test_progress_of_our_own_comes_under_the_hosts_token(token: int | str, message: str, said: dict[str, Any]) -> None:
    text = encode_progress(token, 2.5, message, None)
    params = {"progressToken": token, "progress": 2.5, **said}
    assert json.loads(text) == {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    check_server_message(text, request_method=None)
    of_task = encode_progress(token, 2.5, message, TASK)
    assert json.loads(of_task)["params"] == {**params, "_meta": {RELATED_TASK: {"taskId": TASK}}}
    check_server_message(of_task, request_method=None)


PROGRESS = '{ "method":"notifications/progress","params":{"progress":1.50@, "progressToken" : 41 },"jsonrpc":"2.0"}'
LOG = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"a":1,"a":2}@} }'
FORGED = f',"_meta":{{ "{RELATED_TASK}" : {{"taskId":"{OTHER}"}} , "k":1}}'


@pytest.mark.parametrize("text", [PROGRESS, LOG], ids=["progress", "log"])
@pytest.mark.parametrize("token", [None, "p"])
def test_a_task_that_a_server_made_up_is_left_out(text: str, token: str | None) -> None:
    # T23.
    told = encode_notification(notification(text.replace("@", FORGED)), token, None)
    seen = text if token is None else text.replace(" 41 ", ' "p" ')
    assert told == seen.replace("@", ',"_meta":{ "k":1}')
    check_server_message(told, request_method=None)


@pytest.mark.parametrize("token", [None, "p"])
def test_the_name_of_a_stream_of_the_other_era_is_left_out(token: str | None) -> None:
    # X-EXT-23.
    named = ',"_meta":{ "io.modelcontextprotocol/subscriptionId" : 3 , "k":1}'
    told = encode_notification(notification(LOG.replace("@", named)), token, None)
    assert told == LOG.replace("@", ',"_meta":{ "k":1}')
    check_server_message(told, request_method=None)


@pytest.mark.parametrize("meta", ["", ',"_meta":{ }', ',"_meta":{"k":{"a":1,"a":2}}', ',"_meta":7'])
@pytest.mark.parametrize("text", [PROGRESS, LOG], ids=["progress", "log"])
def test_a_notification_of_a_plain_call_keeps_every_other_byte(text: str, meta: str) -> None:
    told = text.replace("@", meta)
    assert encode_notification(notification(told), None, None) == told
    assert encode_notification(notification(told), "p", None) == told.replace(" 41 ", ' "p" ')


METAS = {
    "none": ("", f'{{"_meta":{{{OURS}}},', ""),
    "empty": (',"_meta":{ }', "{", f',"_meta":{{{OURS} }}'),
    "another": (',"_meta":{"k":1e9}', "{", f',"_meta":{{{OURS},"k":1e9}}'),
    "forged": (FORGED, "{", FORGED.replace(OTHER, TASK)),
    "no object": (',"_meta":7', "{", f',"_meta":{{{OURS}}}'),
}


@pytest.mark.parametrize(("meta", "head", "told"), METAS.values(), ids=METAS)
@pytest.mark.parametrize("text", [PROGRESS, LOG], ids=["progress", "log"])
@pytest.mark.parametrize("token", ["p", None])
def test_what_concerns_a_task_names_it(text: str, meta: str, head: str, told: str, token: str | None) -> None:
    # L-PROG-1, L-META-1.
    seen = encode_notification(notification(text.replace("@", meta)), token, TASK)
    start = text.index('"params":{') + len('"params":')
    expected = f"{text[:start]}{head}{text[start + 1 :]}".replace("@", told)
    assert seen == (expected if token is None else expected.replace(" 41 ", ' "p" '))
    check_server_message(seen, request_method=None)


def test_news_without_params_get_some_for_their_task() -> None:
    text = encode_notification(
        notification(' { "jsonrpc":"2.0","method":"notifications/tools/list_changed"}'), "p", TASK
    )
    assert text == f' {{"params":{{"_meta":{{{OURS}}}}}, "jsonrpc":"2.0","method":"notifications/tools/list_changed"}}'
    check_server_message(text, request_method=None)


@pytest.mark.parametrize("params", ["null", "[1]", "7"])
def test_params_that_are_no_object_stay_as_they_are(params: str) -> None:
    broken = notification(f'{{"jsonrpc":"2.0","method":"notifications/message","params":{params}}}')
    assert encode_notification(broken, "p", TASK) == broken.text


# --- from and to servers ----------------------------------------------------------------------------------------------


DIALECT = LegacyUpstream("1.0", ExtensionPolicy())
SERVER_TASK = '"io.modelcontextprotocol/related-task":{"taskId":"theirs"}'
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
        (f'{{"_meta":{{{SERVER_TASK}}},"message":"m"}}', '{"_meta":{},"message":"m"}'),
        (f'{{"_meta":{{"a":1,{SERVER_TASK}}}}}', '{"_meta":{"a":1}}'),
        (f'{{"_meta":{{{SERVER_TASK},"progressToken":1,"a":1}}}}', '{"_meta":{"progressToken":9,"a":1}}'),
        (f'{{"_meta":{{"progressToken":1,{SERVER_TASK}}}}}', '{"_meta":{"progressToken":9}}'),
    ],
)
def test_the_servers_own_related_task_is_cut_out(params: str, ready: str) -> None:
    assert hear("elicitation/create", params).question.params.with_token(9) == ready


def test_a_question_may_say_which_of_the_servers_own_tasks_it_is_for() -> None:
    assert hear("elicitation/create", f'{{"_meta":{{{SERVER_TASK}}},"message":"m"}}').task == "theirs"
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
    meta = f'"_meta":{{{SERVER_TASK},"a":1}}'
    text = f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{meta},"progressToken":1}}}}'
    assert DIALECT.notification(said(text), 2) == text.replace(f"{SERVER_TASK},", "").replace(
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


def test_a_host_is_asked_for_every_url_that_the_server_names() -> None:
    # -32042.
    other = VISIT | {"elicitationId": "e-2", "url": "https://x.example.com"}
    asked = url_questions(refused(VISIT, other), host())
    assert [question.method for question in asked] == ["elicitation/create"] * 2
    assert [json.loads(question.params.head) for question in asked if question.params] == [VISIT, other]


def test_what_else_the_server_says_of_a_visit_is_not_passed_on() -> None:
    asked = url_questions(refused(VISIT | {"task": {"ttl": 1}, "_meta": {"progressToken": 1}}), host())
    assert asked == url_questions(refused(VISIT), host())
    assert all(isinstance(question, Question) and isinstance(question.params, Params) for question in asked)


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


def test_an_error_that_names_nothing_asks_nothing() -> None:
    assert url_questions(refused(), host()) == ()


def test_a_result_asks_nothing() -> None:
    message = parse(b'{"jsonrpc":"2.0","id":1,"result":{"code":-32042}}', max_depth=64)
    assert isinstance(message, Response)
    assert url_questions(message, host()) == ()


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}, {"elicitation": {"form": {}}}, {"elicitation": 1}])
def test_a_host_that_takes_no_visits_is_not_asked(capabilities: dict[str, Any]) -> None:
    assert url_questions(refused(VISIT), host(capabilities)) == ()


@pytest.mark.parametrize("peer", [None, *(host(revision=revision) for revision in LEGACY)])
def test_a_host_that_knows_the_error_gets_it(peer: Peer | None) -> None:
    # T-24 is about hosts of the other era alone.
    assert url_questions(refused(VISIT), peer) == ()


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
    assert is_accepted(answer) is agreed
