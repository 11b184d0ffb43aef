"""A round of a server of this era crosses the gateway as it is, but for the state, which is ours on one side."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import covers
from taskgate.domain.request_state import MAX_PASS_THROUGH
from taskgate.domain.versions import Peer, Revision
from taskgate.protocol.dialects import Round
from taskgate.protocol.host_requests import LONG, CallTool, Relay, Retry
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.modern.rounds import again, digest, lacking_for, passed_round, round_of
from unit.protocol.modern.judge import INFO, INFO_KEY, RELATED, check, read

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

TOLD = f'"_meta":{{"{INFO_KEY}":{INFO}}}'
PASSED: dict[str, tuple[str, str | None, str]] = {
    "our state for the server's": (
        f'{{ {KIND} , {ASKED},"requestState": "\\u0073" }}',
        "ours",
        f'{{{TOLD}, {KIND} , {ASKED},"requestState": "ours" }}',
    ),
    "our state for none": (f"{{{KIND},{ASKED}}}", "ours", f'{{"requestState":"ours",{TOLD},{KIND},{ASKED}}}'),
    "no state": (f'{{{KIND},"requestState":null,{ASKED}}}', None, f"{{{TOLD},{KIND},{ASKED}}}"),
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
QUESTIONS: dict[str, tuple[str, str]] = {
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


@pytest.mark.parametrize(("asked", "told"), QUESTIONS.values(), ids=QUESTIONS)
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
    assert again(brought, state) == relay._replace(params=sent)
    read(sent.with_token(9))


def test_a_call_stays_a_call() -> None:
    brought = Retry(request=CALL, answers={}, responses=GIVEN, state=None)
    assert again(brought, None) == CALL._replace(params=Params(f'{{"inputResponses":{GIVEN},"name":"t"}}'))


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
    assert digest(CALL._replace(params=opened, progress_token=7, stored_params=None)) == digest(CALL)


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
    assert lacking_for(asks, Peer(revision=Revision.R2026_07_28, capabilities={"roots": {}}, info={})) == missing


@pytest.mark.parametrize("tail", ['"result":{"requestState":"s"}', '"error":{"code":1,"message":"m"}'])
def test_what_asks_for_nothing_lacks_nothing(tail: str) -> None:
    assert lacking_for(response(tail), Peer(revision=Revision.R2026_07_28, capabilities={}, info={})) == {}


@pytest.mark.parametrize(("questions", "parameters"), [(1, 5_000), (2, 3_000)], ids=["of one question", "together"])
def test_a_round_with_very_many_parameters_makes_no_sense(questions: int, parameters: int) -> None:
    params = ",".join(f'"{number}":0' for number in range(parameters))
    one = f'{{"method":"elicitation/create","params":{{{params}}}}}'
    asked = ",".join(f'"{key}":{one}' for key in range(questions))
    asks = result(f'{{"resultType":"input_required","inputRequests":{{{asked}}}}}')
    assert round_of(asks) is None
    assert lacking_for(asks, Peer(revision=Revision.R2026_07_28, capabilities={}, info={})) == {}


def test_a_round_with_a_long_question_makes_sense() -> None:
    one = f'{{"method":"elicitation/create","params":{{"message":"{"m" * LONG}"}}}}'
    assert round_of(result(f'{{"resultType":"input_required","inputRequests":{{"k":{one},"l":{{}}}}}}')) == Round(None)
