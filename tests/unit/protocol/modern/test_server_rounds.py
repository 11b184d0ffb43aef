"""Rounds of questions of servers of the modern era, and the answers to them."""

import json
from typing import Any

import pytest

from requirements import covers
from taskgate.errors import UpstreamFailed
from taskgate.protocol.extensions import Extension
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.modern import server_rounds
from taskgate.protocol.server_messages import Question, ServerRound
from unit.protocol.modern.judge import check, read

ELICIT = {"method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": {"type": "object"}}}


def round_of(result: Any, method: str = "tools/call", extension: Extension | None = None) -> ServerRound | None:
    return of_text(json.dumps(result), method, extension)


def of_text(result: str, method: str = "tools/call", extension: Extension | None = None) -> ServerRound | None:
    response = parse(f'{{"jsonrpc":"2.0","id":7,"result":{result}}}'.encode(), max_depth=64)
    assert isinstance(response, Response)
    return server_rounds.round_of(method, 7, response, extension)


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
    assert round_of(result) is None


def test_an_error_asks_nothing() -> None:
    response = parse(b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":""}}', max_depth=64)
    assert isinstance(response, Response)
    assert server_rounds.round_of("tools/call", 7, response) is None


@pytest.mark.parametrize("kind", [{}, {"resultType": "complete"}, {"resultType": "partial"}])
def test_an_answer_of_a_kind_that_an_extension_has_is_complete(kind: Any) -> None:
    # X-EXT-22.
    assert round_of(kind, "thing/do", Extension(result_types=frozenset({"partial"}))) is None


@pytest.mark.parametrize("kind", ["other", "task", "input_required", None, 1, ["partial"], {"partial": 1}])
def test_an_answer_of_a_kind_that_its_extension_does_not_have_breaks_the_protocol(kind: Any) -> None:
    # X-EXT-21.
    with pytest.raises(UpstreamFailed, match="not asked for"):
        round_of({"resultType": kind}, "thing/do", Extension(result_types=frozenset({"partial"})))


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
    assert round_of({"resultType": "input_required", **result}) == found


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
        round_of(result, method)
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
    with pytest.raises(UpstreamFailed, match="told apart"):
        of_text(f'{{"resultType":"input_required","inputRequests":{requests}}}')


# --- questions in the words of the legacy era


def test_questions_with_very_many_members_together_break_the_protocol() -> None:
    one = {"method": "elicitation/create", "params": {str(number): 0 for number in range(3_000)}}
    assert round_of(asked(k=one)) is not None
    with pytest.raises(UpstreamFailed, match="too many members"):
        round_of(asked(k=one, l=one))


def test_a_question_is_for_the_host_as_it_was_written() -> None:
    text = '{"message":"Wh\\u00ece?","requestedSchema":{"type": "object"},"_meta":{"a/b": 1.0}}'
    found = of_text(
        f'{{"resultType":"input_required","inputRequests":{{"a":{{"method":"elicitation/create","params":{text}}}}}}}'
    )
    assert found is not None
    assert found.questions["a"] == Question("elicitation/create", Params(text))


def test_what_belongs_to_this_era_or_to_this_hop_alone_is_cut_out() -> None:
    meta = {"progressToken": "p", "io.modelcontextprotocol/logLevel": 1, "io.modelcontextprotocol/x": 1, "keep": 1}
    found = round_of(
        asked(a={"method": "sampling/createMessage", "params": {"messages": [], "task": {}, "_meta": meta}})
    )
    assert found is not None
    assert params_of(found.questions["a"]) == {"messages": [], "_meta": {"io.modelcontextprotocol/x": 1, "keep": 1}}


def test_a_page_to_visit_gets_the_id_that_the_legacy_era_wants() -> None:
    page = {"method": "elicitation/create", "params": {"mode": "url", "message": "Go", "url": "https://a.example"}}
    found = round_of(asked(a=page, b=page, c=ELICIT))
    assert found is not None
    ids = [params_of(each).get("elicitationId") for each in found.questions.values()]
    assert ids == ["7-0", "7-1", None]


# --- answers


def answers(**given: tuple[str, str]) -> Any:
    found = server_rounds.answers({key: (Question(method, None), answer) for key, (method, answer) in given.items()})
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
    assert server_rounds.answers({"a": (elicited, server_rounds.no_answer(elicited))}) == '{"a":{"action":"cancel"}}'
    assert server_rounds.answers({"a": (sampled, server_rounds.no_answer(sampled))}) is None
