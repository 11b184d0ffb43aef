"""Questions of servers as this era asks them, and what hosts answer as servers of the legacy era hear it."""

import json

import pytest

from helpers.counted_calls import counted_calls
from requirements import covers
from taskgate.errors import InvalidParams, MalformedMessage
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Params, Request
from taskgate.protocol.modern import mrtr
from taskgate.protocol.server_messages import Question
from unit.protocol.modern.judge import EXTENSION, INFO, RELATED, TOLD, check, read

FORM = '"message":"Who pays?","requestedSchema":{"type":"object","properties":{}}'
SAMPLING = '"messages":[],"maxTokens":10'

# --- questions -----------------------------------------------------------------------------------------------------

# The method, the server's parameters, this era's.
QUESTIONS: dict[str, tuple[str, str, str]] = {
    "a form": ("elicitation/create", f"{{{FORM}}}", f"{{{FORM}}}"),
    "a form for a task": ("elicitation/create", f'{{{FORM},"task":{{"ttl":1}}}}', f"{{{FORM}}}"),
    "a form with a meta": ("elicitation/create", f'{{"_meta":{{"x":1,"progressToken":2}},{FORM}}}', f"{{{FORM}}}"),
    "an address": (
        "elicitation/create",
        '{"mode":"url","elicitationId":"e","url":"https://a.b/c","message":"Go"}',
        '{"mode":"url","url":"https://a.b/c","message":"Go"}',
    ),
    "sampling": ("sampling/createMessage", f"{{ {SAMPLING} }}", f"{{ {SAMPLING} }}"),
    "sampling for a task": (
        "sampling/createMessage",
        f'{{{SAMPLING},"task":{{}},"_meta":{{"progressToken":"p","{RELATED}":{{"taskId":"t"}}}}}}',
        f"{{{SAMPLING}}}",
    ),
    "sampling with tools": (
        "sampling/createMessage",
        f'{{{SAMPLING},"tools":[{{"name":"t","execution":{{}},"inputSchema":{{"type":"object"}}}}]}}',
        f'{{{SAMPLING},"tools":[{{"name":"t","inputSchema":{{"type":"object"}}}}]}}',
    ),
    "sampling with traces": (
        "sampling/createMessage",
        f'{{{SAMPLING},"_meta":{{"progressToken":"p","traceparent":"00"}}}}',
        f'{{{SAMPLING},"_meta":{{"traceparent":"00"}}}}',
    ),
    "roots": ("roots/list", "", "{}"),
    "roots with a meta": ("roots/list", '{"_meta":{"progressToken":1}}', "{}"),
}


@covers("B-CONV-6", "B-CONV-9", "M-MRTR-6")
@pytest.mark.parametrize(("method", "params", "asked"), QUESTIONS.values(), ids=QUESTIONS)
def test_a_question_loses_what_this_era_does_not_know(method: str, params: str, asked: str) -> None:
    request = mrtr.input_request(method, params)
    assert request == f'{{"method":"{method}","params":{asked}}}'
    check(request, "InputRequest")
    check(request, "InputRequest", schema=EXTENSION)


@covers("T43")
def test_more_tools_than_are_looked_at_cross_and_cost_no_more() -> None:
    counts = []
    for tools in (2 * mrtr.MOST_TOOLS, 4 * mrtr.MOST_TOOLS):
        params = f'{{"tools":[{",".join(["{}"] * tools)}]}}'
        with counted_calls() as calls:
            asked = mrtr.input_request("sampling/createMessage", params)
        assert asked == f'{{"method":"sampling/createMessage","params":{params}}}'
        counts.append(calls.count)
    assert counts[0] == counts[1]


def test_a_question_on_its_way_loses_its_progress_token() -> None:
    opened = Params('{"_meta":{"progressToken":', f"}},{SAMPLING}}}")
    expected = f'{{"method":"sampling/createMessage","params":{{{SAMPLING}}}}}'
    assert mrtr.question_request(Question("sampling/createMessage", opened)) == expected
    assert mrtr.question_request(Question("roots/list", None)) == '{"method":"roots/list","params":{}}'


def test_a_result_asks_by_keys_and_names_the_call_that_waits() -> None:
    requests = {
        'a"b': mrtr.input_request("roots/list", ""),
        "c": mrtr.input_request("elicitation/create", f"{{{FORM}}}"),
    }
    found = read(mrtr.input_required(requests, 'se"aled', INFO))
    assert found == {
        "resultType": "input_required",
        "inputRequests": {key: json.loads(text) for key, text in requests.items()},
        "requestState": 'se"aled',
        "_meta": TOLD,
    }
    check(found, "InputRequiredResult")
    check({"jsonrpc": "2.0", "id": 1, "result": found}, "CallToolResultResponse")


@covers("M-MRTR-1")
def test_a_result_may_have_either_and_never_neither() -> None:
    assert read(mrtr.input_required({}, "", INFO)).keys() == {"resultType", "requestState", "_meta"}
    assert read(mrtr.input_required({"a": "{}"}, None, INFO)).keys() == {"resultType", "inputRequests", "_meta"}
    with pytest.raises(AssertionError):
        mrtr.input_required({}, None, INFO)


# --- answers -------------------------------------------------------------------------------------------------------


def request(params: str) -> Request:
    message = parse(f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode(), max_depth=64)
    assert isinstance(message, Request)
    return message


ANSWERS = {
    '{ "action" : "accept","content":{"\\u0061":["x"]} }': '{ "action" : "accept","content":{"\\u0061":["x"]} }',
    '{"action":"decline","resultType":"complete"}': '{"action":"decline"}',
    '{"roots":[],"_meta":{"x":1}}': '{"roots":[],"_meta":{"x":1}}',
    f'{{"roots":[],"_meta":{{"{RELATED}":{{}}}}}}': '{"roots":[]}',
    "{}": "{}",
}


@covers("B-CONV-7", "B-CONV-9")
@pytest.mark.parametrize(("given", "heard"), ANSWERS.items())
def test_an_answer_is_the_result_a_server_waits_for(given: str, heard: str) -> None:
    found = mrtr.answers(request(f'{{"inputResponses":{{"k\\u0031": {given} ,"k2":{{"action":"cancel"}}}}}}'))
    assert found == {"k1": f'{{"result":{heard}}}', "k2": '{"result":{"action":"cancel"}}'}


def test_a_long_answer_is_whole() -> None:
    long = "x" * 200_000
    found = mrtr.answers(request(f'{{"inputResponses":{{"k":{{"content":{{"type":"text","text":"{long}"}}}}}}}}'))
    assert found == {"k": f'{{"result":{{"content":{{"type":"text","text":"{long}"}}}}}}'}


def test_no_answers_are_none() -> None:
    assert mrtr.answers(request('{"inputResponses":{}}')) == mrtr.answers(request("{}")) == {}


@covers("M-UPD-5", "M-MRTR-5")
@pytest.mark.parametrize("value", ["null", "[]", '"a"', '{"k":null}', '{"k":[]}', '{"a":{},"k":"accept"}'])
def test_what_is_no_map_of_objects_is_refused(value: str) -> None:
    with pytest.raises(InvalidParams):
        mrtr.answers(request(f'{{"inputResponses":{value}}}'))


@pytest.mark.parametrize("value", ['{"k":{},"k":{}}', '{"k":{"action":"accept","action":"cancel"}}'])
def test_an_answer_that_stands_twice_is_refused(value: str) -> None:
    with pytest.raises(MalformedMessage):
        mrtr.answers(request(f'{{"inputResponses":{value}}}'))


@covers("T35")
def test_answers_with_very_many_members_together_are_refused() -> None:
    large = ",".join(f'"m{number}":1' for number in range(1_000))
    given = [f'"k{number}":{{{large}}}' for number in range(5)]
    assert len(mrtr.answers(request(f'{{"inputResponses":{{{",".join(given[:4])}}}}}'))) == 4
    with pytest.raises(InvalidParams):
        mrtr.answers(request(f'{{"inputResponses":{{{",".join(given)}}}}}'))


FITTING: list[tuple[str, str, bool]] = [
    ("elicitation/create", '{"action":"accept","content":{}}', True),
    ("elicitation/create", '{"action":"decline"}', True),
    ("elicitation/create", '{"action":"cancel"}', True),
    ("elicitation/create", '{"action":"perhaps"}', False),
    ("elicitation/create", '{"action":["accept"]}', False),
    ("elicitation/create", '{"roots":[]}', False),
    ("sampling/createMessage", '{"model":"m","role":"assistant","content":{"type":"text","text":""}}', True),
    ("sampling/createMessage", '{"model":"m","role":"assistant","content":[]}', True),
    ("sampling/createMessage", '{"model":"m","role":"assistant","content":"x"}', False),
    ("sampling/createMessage", '{"role":"assistant","content":[]}', False),
    ("roots/list", '{"roots":[]}', True),
    ("roots/list", '{"roots":{}}', False),
    ("roots/list", "{}", False),
]


@pytest.mark.parametrize(("method", "given", "does"), FITTING)
def test_an_answer_fits_its_question_or_not(method: str, given: str, does: bool) -> None:
    assert mrtr.fits(method, f'{{"result":{given}}}') is does
    if does:
        check(f'{{"k":{given}}}', "InputResponses")
