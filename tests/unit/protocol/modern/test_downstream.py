"""What a request of this era asks, by what it declares itself and by what the mount offers."""

from typing import Any

import pytest

from requirements import covers
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import InvalidParams, TaskNotFound, UnknownMethod
from taskgate.protocol.classify import declares_tasks
from taskgate.protocol.extensions import BUILT_IN, EVENTS, ExtensionPolicy
from taskgate.protocol.host_requests import (
    CallTool,
    CancelTask,
    Discover,
    GetTask,
    LegacyTaskRequest,
    Listen,
    ModernIntent,
    Relay,
    RequestMeta,
    Retry,
    Subscription,
    UpdateTask,
)
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Params, Request, meta_of, value_of
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.vocabulary import MODERN_RELAYED, ROUND_METHODS

DIALECT = ModernDownstream("0.1.0")
ID = "7Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c"
EXTENSION: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
LEGACY: dict[str, Any] = {"tasks": {"cancel": {}}}
META = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}'


def request(method: str, members: str = "", meta: str = META) -> str:
    return f'{{"jsonrpc":"2.0","id":"h","method":"{method}","params":{{{members}{"," if members else ""}{meta}}}}}'


def decode(
    text: str,
    capabilities: dict[str, Any] | None = None,
    *,
    offers_tasks: bool = True,
    extensions: ExtensionPolicy = ExtensionPolicy(),  # noqa: B008 - a value
) -> ModernIntent:
    sent = parse(text.encode(), max_depth=64)
    assert isinstance(sent, Request)
    declared = EXTENSION if capabilities is None else capabilities
    said = RequestMeta(
        peer=Peer(revision=Revision.R2026_07_28, capabilities=declared, info={}),
        log_level=None,
        progress_token=value_of(meta_of(sent.params), "progressToken"),
        declares_tasks=declares_tasks(declared),
    )
    return DIALECT.decode(sent, said, offers_tasks=offers_tasks, extensions=extensions)


# --- which methods exist -------------------------------------------------------------------------------------------


@covers("V-DISC-3")
@pytest.mark.parametrize("method", ["ping", "tasks/result", "tools/delete", ""])
def test_what_nobody_serves_is_unknown(method: str) -> None:
    # Such a request is turned down before it comes here.
    with pytest.raises(UnknownMethod):
        decode(request(method, f'"taskId":"{ID}"'))


def test_discovery_needs_nothing() -> None:
    assert decode(request("server/discover"), {}, offers_tasks=False) == Discover(id="h")


@pytest.mark.parametrize("method", sorted(MODERN_RELAYED))
def test_what_a_server_answers_is_passed_on(method: str) -> None:
    meta = '"_meta":{"io.modelcontextprotocol/clientInfo":{},"progressToken":7}'
    assert decode(request(method, '"uri":"a:b"', meta), {}) == Relay(
        id="h", method=method, params=Params('{"uri":"a:b","_meta":{"progressToken":', "}}"), progress_token=7
    )


def test_a_request_of_a_carried_extension_is_passed_on() -> None:
    # X-EXT-20.
    meta = '"_meta":{"io.modelcontextprotocol/clientInfo":{},"progressToken":7,"a/b":1.0}'
    assert decode(request("skills/get", '"name":"a","task":1', meta), {}, offers_tasks=False) == Relay(
        id="h",
        method="skills/get",
        params=Params('{"name":"a","_meta":{"progressToken":', ',"a/b":1.0}}'),
        progress_token=7,
    )


@pytest.mark.parametrize("method", ["skills/list", "events/list", "com.example/do"])
def test_one_of_an_extension_that_does_not_cross_is_unknown(method: str) -> None:
    with pytest.raises(UnknownMethod):
        decode(request(method), extensions=ExtensionPolicy(allowed={}, others=True))


def test_a_host_listens_to_what_crosses_of_extensions() -> None:
    # X-EXT-24.
    listens = request("subscriptions/listen", '"notifications":{"eventsListChanged":true}')
    carried = ExtensionPolicy(allowed={EVENTS: BUILT_IN[EVENTS]})
    assert decode(listens, extensions=carried) == Listen(id="h", wants=Subscription(filters=("eventsListChanged",)))
    assert decode(listens) == Listen(id="h", wants=Subscription())


# --- tools/call ----------------------------------------------------------------------------------------------------


def call(**changes: Any) -> CallTool:
    plain = CallTool(
        id="h",
        tool="t",
        params=Params('{"name":"t"}'),
        stored_params=None,
        progress_token=None,
        wants_task=False,
        ttl=None,
    )
    return plain._replace(**changes)


@covers("M-NEG-1", "M-NEG-2", "M-NEG-5", "M-NEG-7")
@pytest.mark.parametrize(
    ("capabilities", "offers_tasks", "may_be_task"),
    [(EXTENSION, True, True), (EXTENSION, False, False), ({}, True, False), (LEGACY, True, False)],
)
def test_a_call_may_become_a_task_where_its_request_declares_that(
    capabilities: dict[str, Any], offers_tasks: bool, may_be_task: bool
) -> None:
    # Nor is `task` an error or a wish.
    for wish in ("", ',"task":{"ttl":1}', ',"task":7'):
        found = decode(request("tools/call", f'"name":"t"{wish}'), capabilities, offers_tasks=offers_tasks)
        assert found == call(stored_params='{"name":"t"}' if may_be_task else None)


def test_a_call_is_kept_without_its_progress_token() -> None:
    found = decode(request("tools/call", '"name":"t"', '"_meta":{"progressToken":"p"}'))
    opened = Params('{"name":"t","_meta":{"progressToken":', "}}")
    assert found == call(params=opened, stored_params='{"name":"t"}', progress_token="p")


def test_a_call_may_have_a_key_that_its_server_does_not_see() -> None:
    found = decode(request("tools/call", '"name":"t"', '"_meta":{"io.taskgate/idempotency-key":"k"}'))
    assert found == call(stored_params='{"name":"t"}', idempotency_key="k")


def test_the_key_of_a_call_is_that_of_its_next_round() -> None:
    found = decode(request("tools/call", f'"name":"t",{ROUND}', '"_meta":{"io.taskgate/idempotency-key":"k"}'))
    assert isinstance(found, Retry)
    assert found.request == call(stored_params='{"name":"t"}', idempotency_key="k")


def test_what_can_be_no_key_is_refused() -> None:
    with pytest.raises(InvalidParams):
        decode(request("tools/call", '"name":"t"', '"_meta":{"io.taskgate/idempotency-key":7}'))


BAD_CALLS = ['"name":7', '"name":"t","arguments":[]', '"arguments":{}']


@pytest.mark.parametrize("members", BAD_CALLS)
def test_a_call_of_the_wrong_type_is_refused(members: str) -> None:
    with pytest.raises(InvalidParams):
        decode(request("tools/call", members))


# --- rounds --------------------------------------------------------------------------------------------------------

DECLINED = {"a": '{"result":{"action":"decline"}}'}
ROUND = '"inputResponses":{"a":{"action":"decline"}},"requestState":"s"'


@covers("M-MRTR-3", "M-MRTR-4")
def test_a_call_that_brings_answers_is_the_next_round_of_one() -> None:
    found = decode(request("tools/call", f'"name":"t",{ROUND}'))
    wanted = call(stored_params='{"name":"t"}')
    assert found == Retry(request=wanted, answers=DECLINED, responses='{"a":{"action":"decline"}}', state="s")


@pytest.mark.parametrize("method", sorted(ROUND_METHODS - {"tools/call"}))
def test_so_are_the_other_two_that_may_ask(method: str) -> None:
    found = decode(request(method, f'"uri":"a:b",{ROUND}'), {})
    wanted = Relay(id="h", method=method, params=Params('{"uri":"a:b"}'), progress_token=None)
    assert found == Retry(request=wanted, answers=DECLINED, responses='{"a":{"action":"decline"}}', state="s")


@pytest.mark.parametrize(
    ("members", "answers", "responses", "state"),
    [
        ('"requestState":""', {}, None, ""),
        ('"inputResponses": { "b":{ }} ', {"b": '{"result":{ }}'}, '{ "b":{ }}', None),
        ('"inputResponses":{}', {}, "{}", None),
    ],
)
def test_a_round_may_bring_either_alone(
    members: str, answers: dict[str, str], responses: str | None, state: str | None
) -> None:
    found = decode(request("tools/call", f'"name":"t",{members}'), {})
    assert found == Retry(request=call(), answers=answers, responses=responses, state=state)


@pytest.mark.parametrize("method", sorted(MODERN_RELAYED - ROUND_METHODS))
def test_elsewhere_such_members_mean_nothing(method: str) -> None:
    found = decode(request(method, '"requestState":7'))
    assert found == Relay(id="h", method=method, params=Params('{"requestState":7}'), progress_token=None)


@covers("M-MRTR-5")
@pytest.mark.parametrize("members", ['"requestState":7', '"inputResponses":[]', '"inputResponses":{"a":1}'])
@pytest.mark.parametrize("method", sorted(ROUND_METHODS))
def test_a_malformed_round_is_refused(method: str, members: str) -> None:
    with pytest.raises(InvalidParams):
        decode(request(method, f'"name":"t",{members}'))


# --- tasks ---------------------------------------------------------------------------------------------------------


def test_a_task_is_looked_at_cancelled_and_given_answers() -> None:
    member = f'"taskId":"{ID}"'
    assert decode(request("tasks/get", member)) == GetTask(id="h", task=ID)
    assert decode(request("tasks/cancel", member)) == CancelTask(id="h", task=ID)
    update = request("tasks/update", f'{member},"inputResponses":{{"a":{{}}}},"requestState":7')
    # M-MRTR-8: a state means nothing to a task.
    assert decode(update) == UpdateTask(id="h", task=ID, answers={"a": '{"result":{}}'})
    assert decode(request("tasks/update", f'{member},"inputResponses":{{}}')) == UpdateTask(id="h", task=ID, answers={})


def test_answers_mean_nothing_where_none_is_asked_for() -> None:
    assert decode(request("tasks/get", f'"taskId":"{ID}","inputResponses":7')) == GetTask(id="h", task=ID)


@covers("M-NEG-7")
def test_a_host_with_tasks_of_old_may_look_at_those_and_cancel_them() -> None:
    # AMB-19.
    for method, intent in {"tasks/get": GetTask(id="h", task=ID), "tasks/cancel": CancelTask(id="h", task=ID)}.items():
        assert decode(request(method, f'"taskId":"{ID}"'), LEGACY) == LegacyTaskRequest(request=intent)
        assert decode(request(method, f'"taskId":"{ID}"'), LEGACY | EXTENSION) == intent


@covers("M-GET-4", "M-UPD-5")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize("params", ['"taskId":7,', '"taskId":"x",', ""])
def test_an_id_that_could_not_be_ours_is_an_unknown_task(method: str, params: str) -> None:
    with pytest.raises(TaskNotFound):
        decode(request(method, f'{params}"inputResponses":{{}}'))


@covers("M-UPD-5")
@pytest.mark.parametrize(
    "members", ["", ',"inputResponses":[]', ',"inputResponses":null', ',"inputResponses":{"a":[]}']
)
def test_an_update_without_a_map_of_answers_is_refused(members: str) -> None:
    with pytest.raises(InvalidParams):
        decode(request("tasks/update", f'"taskId":"{ID}"{members}'))


# --- listening -----------------------------------------------------------------------------------------------------

BOTH = f'"notifications":{{"taskIds":["{ID}"],"toolsListChanged":true}}'


def test_a_host_listens_to_what_it_names() -> None:
    wants = Subscription(tools=True, tasks=(ID,))
    assert decode(request("subscriptions/listen", BOTH)) == Listen(id="h", wants=wants)
    assert decode(request("subscriptions/listen", '"notifications":{}'), {}) == Listen(id="h", wants=Subscription())


@pytest.mark.parametrize("capabilities", [EXTENSION, {}], ids=["tasks", "nothing"])
def test_where_there_are_no_tasks_none_is_listened_to(capabilities: dict[str, Any]) -> None:
    found = decode(request("subscriptions/listen", BOTH), capabilities, offers_tasks=False)
    assert found == Listen(id="h", wants=Subscription(tools=True))


def test_a_wish_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(InvalidParams):
        decode(request("subscriptions/listen", '"notifications":[]'), {})
