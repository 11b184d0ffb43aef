"""Rounds of questions and answers, between hosts and servers of both eras."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.counted_calls import counted_calls
from requirements import covers
from taskgate.domain.request_state import MAX_PASS_THROUGH
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import InvalidParams, MalformedMessage, UpstreamFailed
from taskgate.protocol.extensions import Extension
from taskgate.protocol.host_requests import LONG, CallTool, Relay, Retry
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Params, Request, Response
from taskgate.protocol.modern import rounds
from taskgate.protocol.modern.rounds import Round, digest, missing_capabilities, passed_round, round_of, with_answers
from taskgate.protocol.server_messages import Question, ServerRound
from unit.protocol.modern.judge import EXTENSION, INFO, INFO_KEY, RELATED, TOLD, check, read
from unit.protocol.modern_messages import changed

# --- the gateway's rounds for hosts -----------------------------------------------------------------------------------


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
    request = rounds.input_request(method, params)
    assert request == f'{{"method":"{method}","params":{asked}}}'
    check(request, "InputRequest")
    check(request, "InputRequest", schema=EXTENSION)


@covers("T43")
def test_more_tools_than_are_looked_at_cross_and_cost_no_more() -> None:
    counts = []
    for tools in (2 * rounds.MAX_TOOLS, 4 * rounds.MAX_TOOLS):
        params = f'{{"tools":[{",".join(["{}"] * tools)}]}}'
        with counted_calls() as calls:
            asked = rounds.input_request("sampling/createMessage", params)
        assert asked == f'{{"method":"sampling/createMessage","params":{params}}}'
        counts.append(calls.count)
    assert counts[0] == counts[1]


def test_a_question_on_its_way_loses_its_progress_token() -> None:
    opened = Params('{"_meta":{"progressToken":', f"}},{SAMPLING}}}")
    expected = f'{{"method":"sampling/createMessage","params":{{{SAMPLING}}}}}'
    assert rounds.encode_question(Question("sampling/createMessage", opened)) == expected
    assert rounds.encode_question(Question("roots/list", None)) == '{"method":"roots/list","params":{}}'


def test_a_result_asks_by_keys_and_names_the_call_that_waits() -> None:
    requests = {
        'a"b': rounds.input_request("roots/list", ""),
        "c": rounds.input_request("elicitation/create", f"{{{FORM}}}"),
    }
    found = read(rounds.input_required(requests, 'se"aled', INFO))
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
    assert read(rounds.input_required({}, "", INFO)).keys() == {"resultType", "requestState", "_meta"}
    assert read(rounds.input_required({"a": "{}"}, None, INFO)).keys() == {"resultType", "inputRequests", "_meta"}
    with pytest.raises(AssertionError):
        rounds.input_required({}, None, INFO)


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
    found = rounds.read_answers(request(f'{{"inputResponses":{{"k\\u0031": {given} ,"k2":{{"action":"cancel"}}}}}}'))
    assert found == {"k1": f'{{"result":{heard}}}', "k2": '{"result":{"action":"cancel"}}'}


def test_a_long_answer_is_whole() -> None:
    long = "x" * 200_000
    found = rounds.read_answers(
        request(f'{{"inputResponses":{{"k":{{"content":{{"type":"text","text":"{long}"}}}}}}}}')
    )
    assert found == {"k": f'{{"result":{{"content":{{"type":"text","text":"{long}"}}}}}}'}


def test_no_answers_are_none() -> None:
    assert rounds.read_answers(request('{"inputResponses":{}}')) == rounds.read_answers(request("{}")) == {}


@covers("M-UPD-5", "M-MRTR-5")
@pytest.mark.parametrize("value", ["null", "[]", '"a"', '{"k":null}', '{"k":[]}', '{"a":{},"k":"accept"}'])
def test_what_is_no_map_of_objects_is_refused(value: str) -> None:
    with pytest.raises(InvalidParams):
        rounds.read_answers(request(f'{{"inputResponses":{value}}}'))


@pytest.mark.parametrize("value", ['{"k":{},"k":{}}', '{"k":{"action":"accept","action":"cancel"}}'])
def test_an_answer_that_stands_twice_is_refused(value: str) -> None:
    with pytest.raises(MalformedMessage):
        rounds.read_answers(request(f'{{"inputResponses":{value}}}'))


@covers("T35")
def test_answers_with_very_many_members_together_are_refused() -> None:
    large = ",".join(f'"m{number}":1' for number in range(1_000))
    given = [f'"k{number}":{{{large}}}' for number in range(5)]
    assert len(rounds.read_answers(request(f'{{"inputResponses":{{{",".join(given[:4])}}}}}'))) == 4
    with pytest.raises(InvalidParams):
        rounds.read_answers(request(f'{{"inputResponses":{{{",".join(given)}}}}}'))


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
    assert rounds.is_valid_answer(method, f'{{"result":{given}}}') is does
    if does:
        check(f'{{"k":{given}}}', "InputResponses")


# --- rounds that pass -------------------------------------------------------------------------------------------------


ASKED = '"inputRequests":{ "k":{"method":"roots/list","params":{"_meta":{"x":1e999}}} }'
KIND = '"resultType":"input_required"'


def response(tail: str) -> Response:
    message = parse(f'{{"jsonrpc":"2.0","id":42,{tail}}}'.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


def result(text: str) -> Response:
    return response(f'"result":{text}')


# --- what a server asks for ----------------------------------------------------------------------------------------

LONGEST = "é" * (MAX_PASS_THROUGH // 2)
ROUNDS: dict[str, tuple[str, str | None]] = {
    "questions": (f"{{{KIND},{ASKED}}}", None),
    "questions and a state": (f'{{{ASKED},"requestState":"\\u00e9",{KIND}}}', "é"),
    "a state alone": (f'{{{KIND},"requestState":""}}', ""),
    "a state and no questions": (f'{{{KIND},"inputRequests":{{}},"requestState":"s"}}', "s"),
    "a null state": (f'{{{KIND},{ASKED},"requestState":null}}', None),
    "the longest state": (f'{{{KIND},"requestState":"{LONGEST}"}}', LONGEST),
}


@covers("M-MRTR-1")
@pytest.mark.parametrize(("text", "state"), ROUNDS.values(), ids=ROUNDS)
def test_a_round_is_known_by_its_kind(text: str, state: str | None) -> None:
    assert round_of(result(text)) == Round(state)


NO_ROUNDS: dict[str, str] = {
    "an error": '"error":{"code":1,"message":""}',
    "no object": '"result":[]',
    "no kind": f'"result":{{{ASKED}}}',
    "a complete one": '"result":{"resultType":"complete","requestState":"s"}',
    "a kind that is no text": f'"result":{{"resultType":["input_required"],{ASKED}}}',
    "nothing asked for": f'"result":{{{KIND}}}',
    "no questions": f'"result":{{{KIND},"inputRequests":{{}}}}',
    "a list of questions": f'"result":{{{KIND},"inputRequests":[{{}}],"requestState":"s"}}',
    "null": f'"result":{{{KIND},"inputRequests":null,"requestState":"s"}}',
    "a question that is none": f'"result":{{{KIND},"inputRequests":{{"k":7}},"requestState":"s"}}',
    "a state that is no text": f'"result":{{{KIND},{ASKED},"requestState":7}}',
    "a state that cannot be written": f'"result":{{{KIND},{ASKED},"requestState":"\\ud800"}}',
    "too long a state": f'"result":{{{KIND},"requestState":"{LONGEST}x"}}',
}


@pytest.mark.parametrize("tail", NO_ROUNDS.values(), ids=NO_ROUNDS)
def test_any_other_answer_asks_for_nothing(tail: str) -> None:
    assert round_of(response(tail)) is None


# --- as its host is told -------------------------------------------------------------------------------------------

WITH_INFO = f'"_meta":{{"{INFO_KEY}":{INFO}}}'
PASSED: dict[str, tuple[str, str | None, str]] = {
    "our state for the server's": (
        f'{{ {KIND} , {ASKED},"requestState": "\\u0073" }}',
        "ours",
        f'{{{WITH_INFO}, {KIND} , {ASKED},"requestState": "ours" }}',
    ),
    "our state for none": (f"{{{KIND},{ASKED}}}", "ours", f'{{"requestState":"ours",{WITH_INFO},{KIND},{ASKED}}}'),
    "no state": (f'{{{KIND},"requestState":null,{ASKED}}}', None, f"{{{WITH_INFO},{KIND},{ASKED}}}"),
    "a server's own name": (
        f'{{{KIND},{ASKED},"_meta":{{"{INFO_KEY}":{{"name":"o"}},"io.modelcontextprotocol/x":1}}}}',
        None,
        f'{{{KIND},{ASKED},"_meta":{{"{INFO_KEY}":{INFO},"io.modelcontextprotocol/x":1}}}}',
    ),
}


@pytest.mark.parametrize(("text", "state", "told"), PASSED.values(), ids=PASSED)
def test_a_round_is_passed_on_with_our_state(text: str, state: str | None, told: str) -> None:
    # 10.4.
    whole = passed_round("h", result(text), state, INFO)
    assert whole == f'{{"jsonrpc":"2.0","id":"h","result":{told}}}'
    check(json.loads(whole.replace("1e999", "1"))["result"], "InputRequiredResult")


@pytest.mark.parametrize("said", ["", f',"_meta":{{"{INFO_KEY}": {{"name":"o"}} }}'])
def test_a_round_says_who_the_server_is_where_hosts_are_told(said: str) -> None:
    text = f"{{{KIND},{ASKED}{said}}}"
    assert passed_round("h", result(text), None, None) == f'{{"jsonrpc":"2.0","id":"h","result":{text}}}'


FOREIGN = f'"{RELATED}":{{"taskId":"t"}},"io.taskgate/x":1'
# What a server asks, and what its host is asked.
PASSED_QUESTIONS: dict[str, tuple[str, str]] = {
    "a task and a key of ours": (
        f'{{"k":{{"method":"roots/list","params":{{ "_meta":{{"a":1e999,{FOREIGN}}} }}}}}}',
        '{"k":{"method":"roots/list","params":{ "_meta":{"a":1e999} }}}',
    ),
    "in one of two": (
        f'{{"k":{{"method":"a","params":{{"_meta":{{"b":1}}}}}},"l":{{"method":"a","params":{{"_meta":{{{FOREIGN}}}}}}}}}',
        '{"k":{"method":"a","params":{"_meta":{"b":1}}},"l":{"method":"a","params":{"_meta":{}}}}',
    ),
    "where it is no key of a meta": (
        f'{{"k":{{"method":"a","params":{{{FOREIGN}}}}},"l":{{{FOREIGN}}},"m":[],"n":{{"params":7}}}}',
        f'{{"k":{{"method":"a","params":{{{FOREIGN}}}}},"l":{{{FOREIGN}}},"m":[],"n":{{"params":7}}}}',
    ),
}


@pytest.mark.parametrize(("asked", "told"), PASSED_QUESTIONS.values(), ids=PASSED_QUESTIONS)
def test_keys_of_the_gateway_in_a_question_do_not_cross_and_every_other_byte_does(asked: str, told: str) -> None:
    # X-EXT-27.
    text, left = (f'{{{KIND},"inputRequests": {each},"requestState":"s"}}' for each in (asked, told))
    assert passed_round("h", result(text), "s", None) == f'{{"jsonrpc":"2.0","id":"h","result":{left}}}'


def test_a_state_with_such_words_is_none_of_these_keys() -> None:
    text = f'{{{KIND},"requestState":"io.taskgate/x"}}'
    assert passed_round("h", result(text), "io.taskgate/x", None) == f'{{"jsonrpc":"2.0","id":"h","result":{text}}}'


# --- as it is sent again -------------------------------------------------------------------------------------------

GIVEN = '{ "k":{"roots":[]} }'
CALL = CallTool(1, "t", Params('{"name":"t"}'), '{"name":"t"}', None, wants_task=False, ttl=None)
AGAIN: dict[str, tuple[Params | None, str | None, str | None, Params]] = {
    "both": (
        Params('{ "name":"t"}'),
        GIVEN,
        'é"',
        Params(f'{{"inputResponses":{GIVEN},"requestState":"é\\"", "name":"t"}}'),
    ),
    "answers alone": (Params("{}"), GIVEN, None, Params(f'{{"inputResponses":{GIVEN}}}')),
    "a state alone": (Params("{ }"), None, "", Params('{"requestState":"" }')),
    "neither": (Params('{"a":1}'), None, None, Params('{"a":1}')),
    "a progress token": (
        Params('{"_meta":{"progressToken":', "}}"),
        GIVEN,
        None,
        Params(f'{{"inputResponses":{GIVEN},"_meta":{{"progressToken":', "}}"),
    ),
    "no parameters": (None, None, "s", Params('{"requestState":"s"}')),
}


@covers("M-MRTR-3")
@pytest.mark.parametrize(("params", "responses", "state", "sent"), AGAIN.values(), ids=AGAIN)
def test_a_request_is_sent_again_with_what_its_host_brought(
    params: Params | None, responses: str | None, state: str | None, sent: Params
) -> None:
    # The state is the server's own, to the byte.
    relay = Relay(1, "resources/read", params, 5)
    brought = Retry(request=relay, answers={}, responses=responses, state="ours")
    assert with_answers(brought, state) == changed(relay, params=sent)
    read(sent.with_token(9))


def test_a_call_stays_a_call() -> None:
    brought = Retry(request=CALL, answers={}, responses=GIVEN, state=None)
    assert with_answers(brought, None) == changed(CALL, params=Params(f'{{"inputResponses":{GIVEN},"name":"t"}}'))


# --- what two sendings have in common ------------------------------------------------------------------------------


def of(params: str, method: str = "prompts/get") -> str:
    return digest(Relay(1, method, Params(params), None))


SAME = [
    ('{"a":1,"b":[1,{"c":2,"d":3}]}', '{ "b" : [ 1,{"d":3,"c":2}],\n"a":1}'),
    ('{"a":"\\u00e9\\/"}', '{"a":"é/"}'),
    ('{"a":1,"_meta":{"x":1}}', '{"a":1}'),
    ('{"_meta":{"x":1}}', '{"_meta":{"y":2}}'),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_request_is_the_same_however_it_is_written(one: str, other: str) -> None:
    assert of(one) == of(other)


OTHER = [
    ('{"a":1}', '{"a":2}'),
    ('{"a":1}', '{"b":1}'),
    ('{"a":[1,2]}', '{"a":[2,1]}'),
    ('{"a":1}', '{"a":"1"}'),
    ('{"a":1}', '{"a":true}'),
    ('{"a":1}', '{"a":1.0}'),
    ('{"a":1e999}', '{"a":2e999}'),
    ('{"a":12345678901234567890123}', '{"a":12345678901234567890124}'),
    ('{"a":["number","1"]}', '{"a":1}'),
    ('{"a":["object",[]]}', '{"a":{}}'),
    ('{"a":{"_meta":1}}', '{"a":{}}'),
    ('{"a":null}', "{}"),
    ('{"a":"\\ud800"}', '{"a":"\\udfff"}'),
    ('{"a":{"b":1,"b":2}}', '{"a":{"b":2,"b":1}}'),
]


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_another_request_is_another(one: str, other: str) -> None:
    assert of(one) != of(other)


def long(one: str, other: str, more: str = "") -> str:
    return f'{{"name":"t","arguments":{{"a":{one},"b":{other}}}{more}}}'


def test_a_long_request_is_the_same_as_it_is_written_and_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    ones = f"[{'1,' * LONG}1]"
    moved = f'{{"arguments":{{"a":0,"b":{ones}}},"name":"t"}}'
    monkeypatch.setattr("taskgate.protocol.host_requests.json.loads", lambda *_, **__: pytest.fail("parsed"))
    assert of(long("0", ones)) == of(long("0", ones, ',"_meta":{"x":1}')) == of(moved)
    assert len({of(long("0", ones)), of(long("1", ones)), of(long(ones, "0"))}) == 3
    assert of(long("0", ones)) != of(long("0", ones), "tools/call")


def test_what_meta_holds_is_never_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def loads(text: str, **given: Any) -> Any:
        looked.append(len(text))
        return json.loads(text, **given)

    plain = of(long("0", "1"))
    monkeypatch.setattr("taskgate.protocol.host_requests.json", SimpleNamespace(loads=loads))
    assert of(long("0", "1", f',"_meta":{{"x":[{"1," * LONG}1]}}')) == plain
    assert max(looked) < 100


def test_another_method_is_another_request() -> None:
    text = '{"name":"t"}'
    assert len({of(text), of(text, "resources/read"), digest(CALL)}) == 3
    assert digest(CALL) == of(text, "tools/call")


def test_a_request_without_parameters_has_a_digest_too() -> None:
    assert digest(Relay(1, "prompts/get", None, None)) == of("{}")


def test_the_hosts_progress_token_is_nothing_to_it() -> None:
    opened = Params('{"name":"t","_meta":{"progressToken":', "}}")
    assert digest(changed(CALL, params=opened, progress_token=7, stored_params=None)) == digest(CALL)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
objects = st.dictionaries(st.text(), values)


@given(objects, objects)
def test_two_requests_are_one_where_their_values_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    def plain(found: dict[str, Any]) -> str:
        return json.dumps({name: value for name, value in found.items() if name != "_meta"}, sort_keys=True)

    assert (of(json.dumps(one)) == of(json.dumps(other, indent=1))) == (plain(one) == plain(other))
    assert of(json.dumps(one)) == of(json.dumps(dict(reversed(one.items()))))


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        ('{"a":{"method":"roots/list"},"b":{"method":"sampling/createMessage","params":{}}}', {"sampling": {}}),
        (
            '{"a":{"method":"sampling/createMessage","params":{"tools":[]}},"b":{"method":"elicitation/create"}}',
            {"sampling": {"tools": {}}, "elicitation": {"form": {}}},
        ),
        ('{"a":{"method":"roots/list","params":0}}', {}),
    ],
)
def test_a_round_says_what_its_host_would_have_to_declare(asked: str, missing: dict[str, Any]) -> None:
    asks = result(f'{{"resultType":"input_required","inputRequests":{asked}}}')
    assert (
        missing_capabilities(asks, Peer(revision=Revision.R2026_07_28, capabilities={"roots": {}}, info={})) == missing
    )


@pytest.mark.parametrize("tail", ['"result":{"requestState":"s"}', '"error":{"code":1,"message":"m"}'])
def test_what_asks_for_nothing_lacks_nothing(tail: str) -> None:
    assert missing_capabilities(response(tail), Peer(revision=Revision.R2026_07_28, capabilities={}, info={})) == {}


@pytest.mark.parametrize(("questions", "parameters"), [(1, 5_000), (2, 3_000)], ids=["of one question", "together"])
def test_a_round_with_very_many_parameters_makes_no_sense(questions: int, parameters: int) -> None:
    params = ",".join(f'"{number}":0' for number in range(parameters))
    one = f'{{"method":"elicitation/create","params":{{{params}}}}}'
    asked = ",".join(f'"{key}":{one}' for key in range(questions))
    asks = result(f'{{"resultType":"input_required","inputRequests":{{{asked}}}}}')
    assert round_of(asks) is None
    assert missing_capabilities(asks, Peer(revision=Revision.R2026_07_28, capabilities={}, info={})) == {}


def test_a_round_with_a_long_question_makes_sense() -> None:
    one = f'{{"method":"elicitation/create","params":{{"message":"{"m" * LONG}"}}}}'
    assert round_of(result(f'{{"resultType":"input_required","inputRequests":{{"k":{one},"l":{{}}}}}}')) == Round(None)


# --- rounds of servers ------------------------------------------------------------------------------------------------


ELICIT = {"method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": {"type": "object"}}}


def server_round(result: Any, method: str = "tools/call", extension: Extension | None = None) -> ServerRound | None:
    return of_text(json.dumps(result), method, extension)


def of_text(result: str, method: str = "tools/call", extension: Extension | None = None) -> ServerRound | None:
    response = parse(f'{{"jsonrpc":"2.0","id":7,"result":{result}}}'.encode(), max_depth=64)
    assert isinstance(response, Response)
    return rounds.read_round(method, 7, response, {} if extension is None else {method: extension})


def asked(*, state: str | None = None, **questions: Any) -> dict[str, Any]:
    more = {} if state is None else {"requestState": state}
    return {"resultType": "input_required", "inputRequests": questions, **more}


def params_of(question: Question) -> Any:
    assert question.params is not None
    assert question.params.tail is None
    return read(question.params.head)


# --- what is a round


@covers("V-META-7")
@pytest.mark.parametrize("result", [{}, {"content": []}, {"resultType": "complete"}])
def test_an_answer_without_a_type_is_complete(result: Any) -> None:
    assert server_round(result) is None


def test_an_error_asks_nothing() -> None:
    response = parse(b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":""}}', max_depth=64)
    assert isinstance(response, Response)
    assert rounds.read_round("tools/call", 7, response, {}) is None


@pytest.mark.parametrize("kind", [{}, {"resultType": "complete"}, {"resultType": "partial"}])
def test_an_answer_of_a_kind_that_an_extension_has_is_complete(kind: Any) -> None:
    # X-EXT-22.
    assert server_round(kind, "thing/do", Extension(result_types=frozenset({"partial"}))) is None


@pytest.mark.parametrize("kind", ["other", "task", "input_required", None, 1, ["partial"], {"partial": 1}])
def test_an_answer_of_a_kind_that_its_extension_does_not_have_breaks_the_protocol(kind: Any) -> None:
    # X-EXT-21.
    with pytest.raises(UpstreamFailed, match="does not allow"):
        server_round({"resultType": kind}, "thing/do", Extension(result_types=frozenset({"partial"})))


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
@covers("M-MRTR-1")
def test_a_round_has_questions_and_a_state_as_written(method: str) -> None:
    text = '{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}},"requestState":"\\u00e9"}'
    assert of_text(text, method) == ServerRound({"k": Question("roots/list", None)}, '"\\u00e9"')


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ({"requestState": "s"}, ServerRound({}, '"s"')),
        ({"requestState": "s", "inputRequests": {}}, ServerRound({}, '"s"')),
        ({"requestState": "", "inputRequests": None}, ServerRound({}, '""')),
        (
            {"requestState": None, "inputRequests": {"a": {"method": "roots/list"}}},
            ServerRound({"a": Question("roots/list", None)}, None),
        ),
    ],
)
def test_either_may_be_missing(result: dict[str, Any], found: ServerRound) -> None:
    assert server_round({"resultType": "input_required", **result}) == found


@pytest.mark.parametrize(
    ("result", "method"),
    [
        ([], "tools/call"),
        ({"resultType": "task", "taskId": "x"}, "tools/call"),
        ({"resultType": "later"}, "tools/call"),
        ({"resultType": None}, "tools/call"),
        (asked(a=ELICIT), "tools/list"),
        (asked(a=ELICIT), "completion/complete"),
        ({"resultType": "input_required"}, "tools/call"),
        (asked(), "tools/call"),
        ({**asked(a=ELICIT), "requestState": 3}, "tools/call"),
        ({**asked(), "inputRequests": []}, "tools/call"),
        (asked(a=[]), "tools/call"),
        (asked(a={"method": "tasks/get"}), "tools/call"),
        (asked(a={"method": 3}), "tools/call"),
        (asked(a={"method": ["roots/list"]}), "tools/call"),
        (asked(a={}), "tools/call"),
        (asked(a={"method": "roots/list", "params": []}), "tools/call"),
        (asked(**{f"k{turn}": ELICIT for turn in range(65)}), "tools/call"),
        (asked(**{"\ud800": ELICIT}), "tools/call"),
    ],
)
@covers("V-META-7", "M-MRTR-1")
def test_any_other_answer_breaks_the_protocol(result: Any, method: str) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        server_round(result, method)
    assert (failed.value.reason, failed.value.dispatched) == ("malformed", True)


@pytest.mark.parametrize(
    "requests",
    [
        '{"a":{"method":"roots/list"},"a":{"method":"roots/list"}}',
        '{"a":{"method":"roots/list","method":"roots/list"}}',
        '{"a":{"method":"elicitation/create","params":{"message":"","message":""}}}',
    ],
)
def test_questions_that_repeat_a_key_break_the_protocol(requests: str) -> None:
    with pytest.raises(UpstreamFailed, match="is repeated"):
        of_text(f'{{"resultType":"input_required","inputRequests":{requests}}}')


# --- questions in the words of the legacy era


def test_questions_with_very_many_members_together_break_the_protocol() -> None:
    one = {"method": "elicitation/create", "params": {str(number): 0 for number in range(3_000)}}
    assert server_round(asked(k=one)) is not None
    with pytest.raises(UpstreamFailed, match="too many members"):
        server_round(asked(k=one, l=one))


def test_a_question_is_for_the_host_as_it_was_written() -> None:
    text = '{"message":"Wh\\u00ece?","requestedSchema":{"type": "object"},"_meta":{"a/b": 1.0}}'
    found = of_text(
        f'{{"resultType":"input_required","inputRequests":{{"a":{{"method":"elicitation/create","params":{text}}}}}}}'
    )
    assert found is not None
    assert found.questions["a"] == Question("elicitation/create", Params(text))


def test_what_belongs_to_this_era_or_to_this_hop_alone_is_cut_out() -> None:
    meta = {"progressToken": "p", "io.modelcontextprotocol/logLevel": 1, "io.modelcontextprotocol/x": 1, "keep": 1}
    found = server_round(
        asked(a={"method": "sampling/createMessage", "params": {"messages": [], "task": {}, "_meta": meta}})
    )
    assert found is not None
    assert params_of(found.questions["a"]) == {"messages": [], "_meta": {"io.modelcontextprotocol/x": 1, "keep": 1}}


def test_a_page_to_visit_gets_the_id_that_the_legacy_era_wants() -> None:
    page = {"method": "elicitation/create", "params": {"mode": "url", "message": "Go", "url": "https://a.example"}}
    found = server_round(asked(a=page, b=page, c=ELICIT))
    assert found is not None
    ids = [params_of(each).get("elicitationId") for each in found.questions.values()]
    assert ids == ["7-0", "7-1", None]


# --- answers


def answers(**given: tuple[str, str]) -> Any:
    found = rounds.input_responses({key: (Question(method, None), answer) for key, (method, answer) in given.items()})
    return None if found is None else read(found)


@covers("M-MRTR-6")
def test_answers_are_results_under_the_servers_keys() -> None:
    found = answers(
        e=("elicitation/create", '{"result":{"action":"accept","content":{"a":[ "x"]},"_meta":{"a":1}}}'),
        r=("roots/list", '{"result":{"resultType":"complete","roots":[],"_meta":{}}}'),
        s=(
            "sampling/createMessage",
            '{"result":{"role":"assistant","content":{"type":"text","text":""},"model":"m","_meta":{"a":1}}}',
        ),
    )
    check(found, "InputResponses")
    assert found == {
        "e": {"action": "accept", "content": {"a": ["x"]}},
        "r": {"roots": []},
        "s": {"role": "assistant", "content": {"type": "text", "text": ""}, "model": "m", "_meta": {"a": 1}},
    }


@pytest.mark.parametrize(
    "answer",
    ['{"error":{"code":-1,"message":"no"}}', '{"result":[]}', '{"result":{"action":"cancel","action":"accept"}}'],
)
@covers("M-MRTR-6")
def test_an_answer_without_a_form_makes_all_of_them_have_none(answer: str) -> None:
    good = ("elicitation/create", '{"result":{"action":"cancel"}}')
    assert answers(a=good, b=("elicitation/create", answer), c=good) is None


def test_nobody_having_answered_has_a_form_for_elicitations_alone() -> None:
    elicited, sampled = (Question(method, None) for method in ("elicitation/create", "sampling/createMessage"))
    assert rounds.input_responses({"a": (elicited, rounds.default_answer(elicited))}) == '{"a":{"action":"cancel"}}'
    assert rounds.input_responses({"a": (sampled, rounds.default_answer(sampled))}) is None
