"""What crosses between a server and a host besides calls; every shape of it is with `questions`."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from helpers.schema import RELATED_TASK, check_server_message
from taskgate.domain.record import InputRequest, TaskRecord
from taskgate.domain.versions import LEGACY, NEWEST_LEGACY, Peer, Revision
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.host_requests import (
    AnswerInput,
    AnswerQuestion,
    Ignore,
    LegacyIntent,
    NotifyServer,
    ReportProgress,
)
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import Notification, Params
from taskgate.protocol.server_messages import Question

RecordMaker = Callable[..., TaskRecord]

DIALECT = LegacyDownstream("0.1.0")


def decode(text: str, revision: Revision = NEWEST_LEGACY, *, offers_tasks: bool = True) -> LegacyIntent:
    peer = Peer(revision=revision, capabilities={}, info={})
    message = parse(text.encode(), max_depth=64)
    return DIALECT.decode(message, peer, offers_tasks=offers_tasks, extensions=ExtensionPolicy())


def note(method: str, params: str) -> Notification:
    message = parse(f'{{"jsonrpc":"2.0","method":"{method}","params":{params}}}'.encode(), max_depth=64)
    assert isinstance(message, Notification)
    return message


# --- what a host says ----------------------------------------------------------------------------------------------

PROGRESS = note("notifications/progress", '{"progressToken":"q","progress":1}')
ROOTS = note("notifications/roots/list_changed", "{}")
STATUS = note("notifications/tasks/status", "{}")
SAID: dict[str, tuple[str, LegacyIntent]] = {
    "an answer": (
        '{"jsonrpc":"2.0","id":"q","error":{"code":-1,"message":"no"}}',
        AnswerQuestion(id="q", answer='{"error":{"code":-1,"message":"no"}}'),
    ),
    "an answer to nothing": ('{"jsonrpc":"2.0","id":7,"result":{}}', Ignore()),
    "progress": (PROGRESS.text, ReportProgress(id="q", notification=PROGRESS)),
    "other roots": (ROOTS.text, NotifyServer(notification=ROOTS)),
    "a task of its own": (STATUS.text, NotifyServer(notification=STATUS)),
    "what is none of its business": (note("notifications/message", "{}").text, Ignore()),
}


@pytest.mark.parametrize(("text", "intent"), SAID.values(), ids=SAID)
@pytest.mark.parametrize("revision", LEGACY)
@pytest.mark.parametrize("offers_tasks", [True, False])
def test_a_host_says_the_same_in_any_session(
    text: str, intent: LegacyIntent, revision: Revision, offers_tasks: bool
) -> None:
    assert decode(text, revision, offers_tasks=offers_tasks) == intent


# --- what a host is told -------------------------------------------------------------------------------------------


def test_what_concerns_a_task_names_it(make_record: RecordMaker) -> None:
    # L-PROG-1; the shapes are with `questions`.
    record = make_record()
    related = {RELATED_TASK: {"taskId": record.id}}
    noticed = DIALECT.notification(note("notifications/progress", '{"progressToken":41,"progress":1}'), "p", record.id)
    assert json.loads(noticed)["params"] == {"progress": 1, "progressToken": "p", "_meta": related}
    told = DIALECT.progress("p", 2.0, "m", record.id)
    assert json.loads(told)["params"] == {"progressToken": "p", "progress": 2.0, "message": "m", "_meta": related}
    assert "_meta" not in json.loads(DIALECT.progress("p", 2.0, "m"))["params"]


def test_a_question_is_asked_and_withdrawn_under_our_id() -> None:
    asked = DIALECT.question("q-1", Question("elicitation/create", Params('{"_meta":{"progressToken":', "}}")))
    params = '{"_meta":{"progressToken":"q-1"}}'
    assert asked == f'{{"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":{params}}}'
    withdrawn = DIALECT.withdrawal("q-1", "gone")
    assert json.loads(withdrawn)["params"] == {"requestId": "q-1", "reason": "gone"}
    check_server_message(withdrawn, request_method=None)


def test_an_input_is_asked_under_an_id_that_an_answer_is_read_by(make_record: RecordMaker) -> None:
    record = make_record()
    request = InputRequest(key="input-2", method="roots/list", params="")
    asked = json.loads(DIALECT.input_request(record, request))
    assert asked["id"] == DIALECT.input_id(record.id, "input-2")
    assert DIALECT.input_of(asked["id"]) == (record.id, "input-2")
    assert asked["params"] == {"_meta": {RELATED_TASK: {"taskId": record.id}}}
    answer = f'{{"jsonrpc":"2.0","id":"{asked["id"]}","result":{{"roots":[]}}}}'
    assert decode(answer) == AnswerInput(task=record.id, key="input-2", answer='{"result":{"roots":[]}}')
    check_server_message(asked, request_method="tasks/result")


ASKABLE: dict[str, tuple[dict[str, Any], str, str, bool]] = {
    "roots of a host with roots": ({"roots": {}}, "roots/list", "", True),
    "roots of a host without": ({"sampling": {}}, "roots/list", "", False),
    "a form": ({"elicitation": {}}, "elicitation/create", '{"message":"m"}', True),
    "a url of a host with forms": ({"elicitation": {"form": {}}}, "elicitation/create", '{"mode":"url"}', False),
    "a method of nobody": ({"roots": {}}, "nonsense", "{}", False),
}


@pytest.mark.parametrize(("declared", "method", "params", "taken"), ASKABLE.values(), ids=ASKABLE)
def test_a_host_is_asked_only_what_it_declared(declared: dict[str, Any], method: str, params: str, taken: bool) -> None:
    # L-INPUT-6; every case is with `capabilities`.
    assert DIALECT.can_ask(Peer(revision=NEWEST_LEGACY, capabilities=declared, info={}), method, params) is taken


def test_a_question_that_a_host_keeps_a_task_for_is_told_by_its_parameters_and_settled_by_its_result() -> None:
    assert DIALECT.wants_task('{"task":{}}')
    assert DIALECT.settled_task("tasks/result", '{"taskId":"theirs"}', '{"result":{}}') == "theirs"
