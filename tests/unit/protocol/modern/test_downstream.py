"""Messages of modern hosts are decoded, and notifications for them encoded."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.json_texts import objects, scalars, texts, written
from requirements import covers
from taskgate.domain.versions import Era, Peer, Revision
from taskgate.errors import DownstreamError, InvalidParams, TaskNotFound, UnknownMethod
from taskgate.protocol.classify import declares_tasks
from taskgate.protocol.extensions import BUILT_IN, EVENTS, ExtensionPolicy
from taskgate.protocol.headers import NAME_PARAMS, RequestHeaders, encode_value
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
from taskgate.protocol.jsonrpc import parse, usual_progress
from taskgate.protocol.messages import Notification, Params, Request, Response, meta_of, value_of
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.vocabulary import MODERN_METHODS, MODERN_RELAYED, ROUND_METHODS
from unit.protocol.modern.judge import EXTENSION, INFO_KEY, RELATED, check, read
from unit.protocol.modern_messages import MODERN, changed, classified

# --- requests ---------------------------------------------------------------------------------------------------------


DIALECT = ModernDownstream("0.1.0")
ID = "7Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c"
WITH_TASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
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
    declared = WITH_TASKS if capabilities is None else capabilities
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
    return changed(plain, **changes)


@covers("M-NEG-1", "M-NEG-2", "M-NEG-5", "M-NEG-7")
@pytest.mark.parametrize(
    ("capabilities", "offers_tasks", "may_be_task"),
    [(WITH_TASKS, True, True), (WITH_TASKS, False, False), ({}, True, False), (LEGACY, True, False)],
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
        assert decode(request(method, f'"taskId":"{ID}"'), LEGACY | WITH_TASKS) == intent


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


@pytest.mark.parametrize("capabilities", [WITH_TASKS, {}], ids=["tasks", "nothing"])
def test_where_there_are_no_tasks_none_is_listened_to(capabilities: dict[str, Any]) -> None:
    found = decode(request("subscriptions/listen", BOTH), capabilities, offers_tasks=False)
    assert found == Listen(id="h", wants=Subscription(tools=True))


def test_a_wish_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(InvalidParams):
        decode(request("subscriptions/listen", '"notifications":[]'), {})


# --- any request ------------------------------------------------------------------------------------------------------


P = "io.modelcontextprotocol/"
GONE = {"task", "inputResponses", "requestState"}
CAPABILITIES = ["{}", f'{{"extensions":{{"{P}tasks":{{}}}}}}', '{"tasks":{}}']
META_KEYS = ['"progressToken"', '"traceparent"', f'"{P}clientInfo"', f'"{P}related-task"', '"x"']
KEYS = ['"name"', '"arguments"', '"task"', '"inputResponses"', '"requestState"', '"taskId"', '"notifications"', '"é"']


@st.composite
def objects_of(draw: st.DrawFn, keys: list[str], values: st.SearchStrategy[str], more: str = "") -> str:
    names = draw(st.lists(st.sampled_from(keys), unique=True))
    parts = [f"{name}: {draw(values)} " for name in names] + ([more] if more else [])
    return f"{{ {','.join(parts)} }}"


ids = st.sampled_from(['"7Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c"', '"t"', "7"])
values = st.one_of(ids, scalars, texts, objects(objects(texts)))


@st.composite
def parameters(draw: st.DrawFn) -> str:
    said = f'"{P}protocolVersion":"{MODERN}","{P}clientCapabilities":{draw(st.sampled_from(CAPABILITIES))}'
    meta = draw(objects_of(META_KEYS, st.one_of(ids, texts), said))
    return draw(objects_of(KEYS, values, f'"_meta":{meta}'))


def headers_of(request: Request) -> RequestHeaders:
    name = value_of(request.params, NAME_PARAMS.get(request.method, ""))
    sent = encode_value(name) if isinstance(name, str) and name.isascii() else None
    return RequestHeaders(version=MODERN, method=request.method, name=sent)


@given(st.sampled_from(sorted(MODERN_METHODS)), parameters(), st.booleans())
def test_a_request_is_understood_or_refused(method: str, sent: str, offers_tasks: bool) -> None:
    text = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{sent}}}'
    try:
        message = parse(text.encode(), max_depth=256)
        assert isinstance(message, Request)
        said = classified(message, headers_of(message), offers_tasks=offers_tasks)
        assert isinstance(said, RequestMeta)
        intent = DIALECT.decode(message, said, offers_tasks=offers_tasks, extensions=ExtensionPolicy())
    except DownstreamError:
        return
    asked = intent.request if isinstance(intent, Retry) else intent
    if not isinstance(asked, CallTool | Relay):
        return
    assert asked.params is not None
    passed = written(asked.params.with_token(9))
    gone = GONE if method in ("tools/call", "prompts/get", "resources/read") else {"task"}
    assert [pair for pair in passed if pair[0] != "_meta"] == [
        pair for pair in written(sent) if pair[0] not in gone | {"_meta"}
    ]
    meta = dict(dict(written(sent))["_meta"])
    kept = {key: value for key, value in meta.items() if not key.startswith(P)}
    assert dict(dict(passed).get("_meta", [])) == (kept | {"progressToken": 9} if "progressToken" in meta else kept)
    if isinstance(asked, CallTool) and asked.stored_params is not None:
        assert "progressToken" not in dict(dict(written(asked.stored_params)).get("_meta", []))


@given(
    st.sampled_from(["tools/call", "tools/list", "resources/read"]), objects(texts, repeats=False), st.sampled_from(Era)
)
def test_a_servers_result_keeps_every_value(method: str, result: str, era: Era) -> None:
    try:
        response = parse(f'{{"jsonrpc":"2.0","id":1,"result":{result}}}'.encode(), max_depth=256)
    except DownstreamError:
        return
    assert isinstance(response, Response)
    told = dict(dict(written(DIALECT.answer("h", method, response, era, DIALECT.info)))["result"])
    ours = {"resultType", "ttlMs", "cacheScope", "_meta"}
    assert {"content": [], **told, "resultType": "complete"} == {"content": [], **told}
    assert {key: value for key, value in told.items() if key not in ours | {"content"}} == {
        key: value for key, value in dict(written(result)).items() if key not in ours | {"content"}
    }
    assert dict(told["_meta"])[f"{P}serverInfo"] == list(json.loads('{"name":"taskgate","version":"0.1.0"}').items())


# --- notifications ----------------------------------------------------------------------------------------------------


KEY = "io.modelcontextprotocol/subscriptionId"


def note(method: str, params: str | None = None) -> Notification:
    tail = "" if params is None else f',"params":{params}'
    message = parse(f'{{"method":"notifications/{method}"{tail},"jsonrpc":"2.0"}}'.encode(), max_depth=32)
    assert isinstance(message, Notification)
    return message


@pytest.mark.parametrize(("token", "written"), [(7, "7"), ('h"', '"h\\""')])
def test_progress_goes_out_under_the_hosts_own_token(token: str | int, written: str) -> None:
    told = note("progress", f'{{"progressToken": 42 ,"progress":1.0,"_meta":{{"{RELATED}":{{}},"x":1}}}}')
    text = DIALECT.notification(told, token)
    assert text == (
        '{"jsonrpc":"2.0","method":"notifications/progress",'
        f'"params":{{"progressToken": {written} ,"progress":1.0,"_meta":{{"x":1}}}}}}'
    )
    check(text, "ProgressNotification")


@pytest.mark.parametrize(("token", "written"), [(7, "7"), ('h"', '"h\\""'), (None, "42")])
@pytest.mark.parametrize("form", ['{{"progressToken": {} ,"progress":1.0}}', '{{ "progress":1.0, "progressToken":{}}}'])
def test_progress_without_more_words_goes_out_with_every_other_byte(token: Any, written: str, form: str) -> None:
    text = DIALECT.notification(note("progress", form.format("42")), token)
    told = form.format(written)
    assert text == f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{told}}}'


def test_a_log_message_goes_out_as_it_came() -> None:
    text = DIALECT.notification(note("message", '{"level":"info","data":[1e999]}'), None)
    assert text == '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":[1e999]}}'
    check(text, "LoggingMessageNotification")


@pytest.mark.parametrize(
    ("id_", "written", "told"),
    [
        (
            "h",
            f'{{"_meta":{{"{KEY}": 3 ,"a/b":1.0}},"cursor":null}}',
            f'{{"_meta":{{"{KEY}": "h" ,"a/b":1.0}},"cursor":null}}',
        ),
        (7, f'{{"_meta":{{"{KEY}":"x"}}}}', f'{{"_meta":{{"{KEY}":7}}}}'),
        (7, '{"_meta":{"a/b":1.0}}', '{"_meta":{"a/b":1.0}}'),
        (7, "{}", "{}"),
        (None, f'{{"_meta":{{"{KEY}":3,"a/b":1.0}}}}', '{"_meta":{"a/b":1.0}}'),
    ],
)
def test_a_notification_that_names_its_stream_names_the_hosts_own(
    id_: str | int | None, written: str, told: str
) -> None:
    # X-EXT-23.
    text = DIALECT.notification(note("events/active", written), None, id_)
    assert text == f'{{"jsonrpc":"2.0","method":"notifications/events/active","params":{told}}}'


def test_a_token_is_told_with_progress_alone() -> None:
    text = DIALECT.notification(note("events/active", '{"progressToken":3}'), "h", "h")
    assert read(text)["params"] == {"progressToken": 3}


@pytest.mark.parametrize(("message", "told"), [("", {}), ("half", {"message": "half"})])
def test_progress_of_our_own_says_what_there_is_to_say(message: str, told: dict[str, Any]) -> None:
    text = DIALECT.progress("t", 0.5, message)
    assert read(text)["params"] == {"progressToken": "t", "progress": 0.5, **told}
    check(text, "ProgressNotification")


@covers("M-LOG-1", "T-16")
@pytest.mark.parametrize(
    ("said", "wanted", "heard"),
    [
        ('"error"', "warning", True),
        ('"warning"', "warning", True),
        ('"notice"', "warning", False),
        ('"debug"', "debug", True),
        ('"emergency"', "emergency", True),
        ('"emergency"', None, False),
        ('"loud"', "debug", False),
        ('["error"]', "debug", False),
    ],
)
def test_a_log_message_is_heard_from_its_level_on(said: str, wanted: str | None, heard: bool) -> None:
    assert DIALECT.wants_log(note("message", f'{{"level":{said},"data":1}}'), wanted) is heard
    assert not DIALECT.wants_log(note("message", '{"data":1}'), wanted)


GRANTS: dict[str, tuple[Subscription, dict[str, Any]]] = {
    "nothing": (Subscription(), {}),
    "all": (
        Subscription(tools=True, prompts=True, resources=True, resource_uris=("a:b",), tasks=("t", "u")),
        {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourcesListChanged": True,
            "resourceSubscriptions": ["a:b"],
            "taskIds": ["t", "u"],
        },
    ),
    "none of the tasks": (Subscription(prompts=True, tasks=()), {"promptsListChanged": True, "taskIds": []}),
    "members of extensions": (
        Subscription(tools=True, filters=("eventsListChanged", "thingChanged")),
        {"toolsListChanged": True, "eventsListChanged": True, "thingChanged": True},
    ),
    "none of the resources": (Subscription(resource_uris=()), {"resourceSubscriptions": []}),
}


@covers("M-NOTIF-2", "T-15")
@pytest.mark.parametrize("id_", ["sub-7", 7])
@pytest.mark.parametrize(("granted", "told"), GRANTS.values(), ids=GRANTS)
def test_a_stream_begins_with_what_is_granted(granted: Subscription, told: dict[str, Any], id_: str | int) -> None:
    found = read(DIALECT.subscription_granted(id_, granted))
    assert found["params"] == {"notifications": told, "_meta": {KEY: id_}}
    check(found, "SubscriptionsAcknowledgedNotification")
    check(told, "TaskSubscriptionAcknowledgedNotifications", schema=EXTENSION)


@covers("M-NOTIF-3")
@pytest.mark.parametrize(
    ("params", "told"),
    [
        (None, f'{{"_meta":{{"{KEY}":"s"}}}}'),
        ("[]", f'{{"_meta":{{"{KEY}":"s"}}}}'),
        ('{"uri" : "a:b"}', f'{{"_meta":{{"{KEY}":"s"}},"uri" : "a:b"}}'),
        (f'{{"_meta":{{"{KEY}":1,"x":2}}}}', f'{{"_meta":{{"{KEY}":"s","x":2}}}}'),
        (f'{{"_meta":{{"{RELATED}":1}}}}', f'{{"_meta":{{"{KEY}":"s"}}}}'),
    ],
)
def test_news_of_a_server_carry_the_id_of_the_stream(params: str | None, told: str) -> None:
    text = DIALECT.stream_notification("s", note("tools/list_changed", params))
    assert text == f'{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{told}}}'
    check(text, "ToolListChangedNotification")


@covers("M-NOTIF-6")
def test_a_stream_ends_with_an_empty_result() -> None:
    result = read(DIALECT.subscription_ended(7))["result"]
    assert result == {"resultType": "complete", "_meta": {KEY: 7, INFO_KEY: read(DIALECT.info)}}
    check(result, "SubscriptionsListenResult")


def test_usual_progress_is_relayed_as_any_notification_is() -> None:
    text = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1,"total":3}}'
    usual, parsed = usual_progress(text.encode()), parse(text.encode(), max_depth=9)
    assert usual is not None
    assert isinstance(parsed, Notification)
    assert DIALECT.relayed_progress(usual, b'"t"').decode() == DIALECT.notification(parsed, token="t")
