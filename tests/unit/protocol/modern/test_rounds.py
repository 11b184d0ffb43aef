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
from taskgate.errors import InvalidParams, UpstreamFailed
from taskgate.protocol.extensions import Extension
from taskgate.protocol.host_requests import LONG, CallTool, Relay
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Params, Request, Response
from taskgate.protocol.modern import rounds
from taskgate.protocol.modern.rounds import Round, digest, missing_capabilities, round_of
from taskgate.protocol.server_messages import ServerRound

# --- questions -----------------------------------------------------------------------------------------------------


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


# --- answers -------------------------------------------------------------------------------------------------------


def request(params: str) -> Request:
    message = parse(f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode(), max_depth=64)
    assert isinstance(message, Request)
    return message


def test_a_long_answer_is_whole() -> None:
    long = "x" * 200_000
    found = rounds.read_answers(
        request(f'{{"inputResponses":{{"k":{{"content":{{"type":"text","text":"{long}"}}}}}}}}')
    )
    assert found == {"k": f'{{"result":{{"content":{{"type":"text","text":"{long}"}}}}}}'}


@covers("T35")
def test_answers_with_very_many_members_together_are_refused() -> None:
    large = ",".join(f'"m{number}":1' for number in range(1_000))
    given = [f'"k{number}":{{{large}}}' for number in range(5)]
    assert len(rounds.read_answers(request(f'{{"inputResponses":{{{",".join(given[:4])}}}}}'))) == 4
    with pytest.raises(InvalidParams):
        rounds.read_answers(request(f'{{"inputResponses":{{{",".join(given)}}}}}'))


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


# --- as it is sent again -------------------------------------------------------------------------------------------

CALL = CallTool(1, "t", Params('{"name":"t"}'), '{"name":"t"}', None, wants_task=False, ttl=None)


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


# --- what is a round


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


# --- questions in the words of the legacy era


def test_questions_with_very_many_members_together_break_the_protocol() -> None:
    one = {"method": "elicitation/create", "params": {str(number): 0 for number in range(3_000)}}
    assert server_round(asked(k=one)) is not None
    with pytest.raises(UpstreamFailed, match="too many members"):
        server_round(asked(k=one, l=one))
