"""A server's answer of many megabytes is passed on, or refused, without being made into objects on the event loop.

A tree of objects takes up to 45 times the memory of its text, and the loop for as long as it takes to make.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from requirements import covers
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import UpstreamFailed
from taskgate.jsontext.spans import LargeMember, Member
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy import results as legacy_results
from taskgate.protocol.legacy.questions import url_questions
from taskgate.protocol.legacy.upstream import LegacyServerTasks
from taskgate.protocol.messages import Response
from taskgate.protocol.modern import rounds, upstream
from taskgate.protocol.modern.results import convert_error
from taskgate.protocol.modern.rounds import missing_capabilities, round_of
from taskgate.protocol.server_messages import call_outcome
from taskgate.upstream import failures
from taskgate.upstream.duplex.peek import task_shown_in

HUGE = f"[{', '.join(['{}'] * 60_000)}]"
HOST = Peer(revision=Revision.R2026_07_28, capabilities={"elicitation": {"form": {}, "url": {}}}, info={})
WORKING = '"taskId":"t","status":"working","createdAt":"","lastUpdatedAt":"","ttlMs":1'
FORM = f'{{"method":"elicitation/create","params":{{"message":"m","requestedSchema":{{"properties":{HUGE}}}}}}}'


@pytest.fixture(autouse=True)
def nothing_large_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes objects of a large text fails."""
    monkeypatch.setattr(LargeMember, "whole", property(lambda _: pytest.fail("read")))


def result(members: str) -> Response:
    message = parse(f'{{"jsonrpc":"2.0","id":1,"result":{{{members}}}}}'.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


def error(code: int, data: str) -> Response:
    text = f'{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"m","data":{data}}}}}'
    message = parse(text.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


def text_of_error(code: int, data: str) -> str:
    return f'{{"code":{code},"message":"m","data":{data}}}'


def questions(one: str, number: int) -> Response:
    asked = ",".join(f'"{key}":{one}' for key in range(number))
    return result(f'"resultType":"input_required","requestState":"s","inputRequests":{{{asked}}}')


@covers("T43")
@pytest.mark.parametrize(
    "read",
    [
        lambda: call_outcome(error(-32603, HUGE)),
        lambda: failures.said_in(error(-32022, HUGE)),
        lambda: upstream.needs_tasks(error(-32003, HUGE)),
        lambda: url_questions(error(-32042, f'{{"elicitations":{HUGE}}}'), HOST),
        lambda: legacy_results.convert_error(text_of_error(-32602, HUGE), "resources/read"),
        lambda: legacy_results.convert_error(text_of_error(-32022, f'{{"a":{HUGE}}}'), "tools/call"),
        lambda: convert_error(text_of_error(-32022, f'{{"a":{HUGE}}}')),
    ],
    ids=["an outcome", "its era", "a lack", "pages to visit", "not found", "another code", "another era's code"],
)
def test_the_data_of_an_error_are_not_read(read: Callable[[], Any]) -> None:
    assert read() is not None


@covers("T43")
def test_a_question_is_asked_whatever_its_schema_holds() -> None:
    asked = rounds.read_round("tools/call", 1, questions(FORM, 1), {})
    assert asked is not None
    assert [question.method for question in asked.questions.values()] == ["elicitation/create"]
    assert round_of(questions(FORM, 1)) is not None
    assert missing_capabilities(questions(FORM, 1), HOST) == {}
    assert missing_capabilities(questions(FORM, 1), HOST._replace(capabilities={})) == {"elicitation": {"form": {}}}


@covers("T43")
def test_more_questions_than_are_ever_asked_are_refused_unread() -> None:
    plain = '{"method":"roots/list"}'
    assert round_of(questions(plain, rounds.MAX_QUESTIONS)) is not None
    assert round_of(questions(plain, rounds.MAX_QUESTIONS + 1)) is None
    with pytest.raises(UpstreamFailed):
        rounds.read_round("tools/call", 1, questions(plain, 100_000), {})
    assert missing_capabilities(questions(plain, 100_000), HOST) == {}


@covers("T43")
@pytest.mark.parametrize("place", ["beside", "in the parameters"])
def test_questions_with_more_members_than_are_ever_said_are_refused(place: str) -> None:
    more = ",".join(f'"m{number}":1' for number in range(2_000))
    inner, beside = (f",{more}", "") if place == "in the parameters" else ("", f",{more}")
    large = f'{{"method":"elicitation/create","params":{{"message":"m"{inner}}}{beside}}}'
    assert round_of(questions(large, 2)) is not None
    assert len(rounds.read_questions(*asked_in(questions(large, 2)), 1)) == 2
    assert round_of(questions(large, 3)) is None
    with pytest.raises(UpstreamFailed):
        rounds.read_questions(*asked_in(questions(large, 3)), 1)


def asked_in(response: Response) -> tuple[str, Member]:
    assert response.result is not None
    assert response.result.members is not None
    return response.text, response.result.members["inputRequests"]


@covers("T43")
def test_a_task_is_known_by_its_own_members() -> None:
    shown = result(f'{WORKING},"more":{HUGE}')
    assert upstream.read_state(1, "t", shown) is not None
    assert LegacyServerTasks().read_state("t", shown) is not None
    told = task_shown_in(shown.text.encode())
    assert told is not None
    assert told.id == "t"


@covers("T43")
def test_what_came_of_a_task_is_passed_on_as_it_is() -> None:
    came = upstream.read_state(
        1, "t", result(f'{WORKING.replace("working", "completed")},"result":{{"content":{HUGE}}}')
    )
    assert came is not None
    assert came.response is not None
    assert json.loads(came.response.text)["result"]["content"] == json.loads(HUGE)
