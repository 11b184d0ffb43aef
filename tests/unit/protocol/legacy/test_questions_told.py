"""How a host is asked, and told of progress and news: under whose id, related to which task, every other byte kept."""

import json
from typing import Any

import pytest

from helpers.schema import RELATED_TASK, check_server_message
from taskgate.domain.record import InputRequest
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.questions import (
    input_text,
    notice_text,
    progress_text,
    question_text,
    withdrawal_text,
)
from taskgate.protocol.messages import Notification, Params
from taskgate.protocol.server_messages import Question

TASK = "7Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c"
OTHER = "8Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c"
KEY = "input-1"
INPUT = f"{TASK}.{KEY}"
OURS = f'"{RELATED_TASK}":{{"taskId":"{TASK}"}}'
FORM = '{"message":"\\u00e9?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}'


def notification(text: str) -> Notification:
    message = parse(text.encode(), max_depth=64)
    assert isinstance(message, Notification)
    return message


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
    text = question_text("q-1", question)
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
    text = input_text(TASK, InputRequest(key=KEY, method=method, params=params))
    assert text == f'{{"jsonrpc":"2.0","id":"{INPUT}","method":"{method}","params":{told}}}'
    check_server_message(text, request_method="tasks/result")


def test_the_withdrawal_of_a_question_names_it() -> None:
    text = withdrawal_text("q-1", 'No "é" any more')
    assert json.loads(text) == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": "q-1", "reason": 'No "é" any more'},
    }
    check_server_message(text, request_method=None)


def test_the_withdrawal_of_an_input_names_its_task_too() -> None:
    # L-META-1.
    text = withdrawal_text(INPUT, "gone")
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
    text = progress_text(token, 2.5, message, None)
    params = {"progressToken": token, "progress": 2.5, **said}
    assert json.loads(text) == {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    check_server_message(text, request_method=None)
    of_task = progress_text(token, 2.5, message, TASK)
    assert json.loads(of_task)["params"] == {**params, "_meta": {RELATED_TASK: {"taskId": TASK}}}
    check_server_message(of_task, request_method=None)


PROGRESS = '{ "method":"notifications/progress","params":{"progress":1.50@, "progressToken" : 41 },"jsonrpc":"2.0"}'
LOG = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"a":1,"a":2}@} }'
FORGED = f',"_meta":{{ "{RELATED_TASK}" : {{"taskId":"{OTHER}"}} , "k":1}}'


@pytest.mark.parametrize("text", [PROGRESS, LOG], ids=["progress", "log"])
@pytest.mark.parametrize("token", [None, "p"])
def test_a_task_that_a_server_made_up_is_left_out(text: str, token: str | None) -> None:
    # T23.
    told = notice_text(notification(text.replace("@", FORGED)), token, None)
    seen = text if token is None else text.replace(" 41 ", ' "p" ')
    assert told == seen.replace("@", ',"_meta":{ "k":1}')
    check_server_message(told, request_method=None)


@pytest.mark.parametrize("token", [None, "p"])
def test_the_name_of_a_stream_of_the_other_era_is_left_out(token: str | None) -> None:
    # X-EXT-23.
    named = ',"_meta":{ "io.modelcontextprotocol/subscriptionId" : 3 , "k":1}'
    told = notice_text(notification(LOG.replace("@", named)), token, None)
    assert told == LOG.replace("@", ',"_meta":{ "k":1}')
    check_server_message(told, request_method=None)


@pytest.mark.parametrize("meta", ["", ',"_meta":{ }', ',"_meta":{"k":{"a":1,"a":2}}', ',"_meta":7'])
@pytest.mark.parametrize("text", [PROGRESS, LOG], ids=["progress", "log"])
def test_a_notification_of_a_plain_call_keeps_every_other_byte(text: str, meta: str) -> None:
    told = text.replace("@", meta)
    assert notice_text(notification(told), None, None) == told
    assert notice_text(notification(told), "p", None) == told.replace(" 41 ", ' "p" ')


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
    seen = notice_text(notification(text.replace("@", meta)), token, TASK)
    start = text.index('"params":{') + len('"params":')
    expected = f"{text[:start]}{head}{text[start + 1 :]}".replace("@", told)
    assert seen == (expected if token is None else expected.replace(" 41 ", ' "p" '))
    check_server_message(seen, request_method=None)


def test_news_without_params_get_some_for_their_task() -> None:
    text = notice_text(notification(' { "jsonrpc":"2.0","method":"notifications/tools/list_changed"}'), "p", TASK)
    assert text == f' {{"params":{{"_meta":{{{OURS}}}}}, "jsonrpc":"2.0","method":"notifications/tools/list_changed"}}'
    check_server_message(text, request_method=None)


@pytest.mark.parametrize("params", ["null", "[1]", "7"])
def test_params_that_are_no_object_stay_as_they_are(params: str) -> None:
    broken = notification(f'{{"jsonrpc":"2.0","method":"notifications/message","params":{params}}}')
    assert notice_text(broken, "p", TASK) == broken.text
