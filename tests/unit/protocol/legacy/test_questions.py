"""What a host answers and tells its server: what it is about, less the related-task key, every other byte kept."""

import json

import pytest

from helpers.schema import RELATED_TASK, check_definition
from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import dump
from taskgate.protocol.faults import fault
from taskgate.protocol.host_requests import AnswerInput, AnswerQuestion, Ignore, NotifyServer, ReportProgress
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.questions import (
    input_id,
    input_of,
    read_answer,
    read_notice,
)
from taskgate.protocol.messages import Notification, Response

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
    assert read_notice(told) == ReportProgress(id=token, notification=told)


@pytest.mark.parametrize("token", ["1", "null", "true", "{}", '["q-1"]', "1.5", r'"\ud800"', f'"{"x" * 257}"'])
def test_progress_under_anything_else_is_of_nothing_that_was_asked(token: str) -> None:
    assert read_notice(note("notifications/progress", f'{{"progress":1,"progressToken":{token}}}')) == Ignore()


@pytest.mark.parametrize("params", [None, "{}", "[]", '"q-1"'])
def test_progress_without_a_token_is_of_nothing(params: str | None) -> None:
    assert read_notice(note("notifications/progress", params)) == Ignore()


@pytest.mark.parametrize("params", [None, "{}", '{"taskId":"t","status":"working"}'])
@pytest.mark.parametrize("method", ["notifications/roots/list_changed", "notifications/tasks/status"])
def test_news_of_a_host_are_for_its_server(method: str, params: str | None) -> None:
    # L-HOST-4.
    assert read_notice(note(method, params)) == NotifyServer(notification=note(method, params))


@pytest.mark.parametrize("params", ["[]", "null", "7", '"x"'])
@pytest.mark.parametrize("method", ["notifications/roots/list_changed", "notifications/tasks/status"])
def test_news_with_params_that_are_no_object_are_dropped(method: str, params: str) -> None:
    assert read_notice(note(method, params)) == Ignore()


DROPPED = ["initialized", "message", "tools/list_changed", "elicitation/complete", "resources/updated", "x", ""]


@pytest.mark.parametrize("name", DROPPED)
def test_any_other_notification_of_a_host_is_dropped(name: str) -> None:
    # Decisions d.
    assert read_notice(note(f"notifications/{name}", '{"progressToken":"q-1"}')) == Ignore()
