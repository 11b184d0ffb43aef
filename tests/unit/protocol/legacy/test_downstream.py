"""What a host's message asks, by the revision of its session and by what the mount offers."""

import json
from datetime import timedelta
from typing import Any

import pytest

from taskgate.domain.listing import ALL_TASKS, NEWEST_FIRST, TaskFilter, TaskOrder
from taskgate.domain.versions import LEGACY, NEWEST_LEGACY, Era, Peer, Revision
from taskgate.errors import InvalidParams, MalformedMessage, SessionRequired, TaskNotFound, UnknownMethod
from taskgate.protocol.extensions import Extension, ExtensionPolicy
from taskgate.protocol.host_requests import (
    AnswerPing,
    AwaitTask,
    CallTool,
    CancelCall,
    CancelTask,
    GetTask,
    Ignore,
    LegacyIntent,
    ListTasks,
    OpenSession,
    Relay,
)
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import MAX_CAPABILITIES, Params
from taskgate.protocol.vocabulary import RELAYED_METHODS

DIALECT = LegacyDownstream("0.1.0")
LISTING = LegacyDownstream("0.1.0", lists=True)
ID = "7Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c"
TASKS_METHODS = {"tasks/get": GetTask, "tasks/result": AwaitTask, "tasks/cancel": CancelTask}
OLDER = [revision for revision in LEGACY if not revision.has_tasks]


def decode(
    text: str,
    revision: Revision | None = NEWEST_LEGACY,
    *,
    offers_tasks: bool = True,
    extensions: ExtensionPolicy = ExtensionPolicy(),  # noqa: B008 - a value
) -> LegacyIntent:
    peer = None if revision is None else Peer(revision=revision, capabilities={}, info={})
    message = parse(text.encode(), max_depth=64)
    return DIALECT.decode(message, peer, offers_tasks=offers_tasks, extensions=extensions)


def request(method: str, params: str | None = None, id_: str = "1") -> str:
    tail = "" if params is None else f',"params":{params}'
    return f'{{"jsonrpc":"2.0","id":{id_},"method":"{method}"{tail}}}'


def note(method: str, params: str | None = None) -> str:
    tail = "" if params is None else f',"params":{params}'
    return f'{{"jsonrpc":"2.0","method":"{method}"{tail}}}'


# --- initialize ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", LEGACY)
@pytest.mark.parametrize("session", [None, NEWEST_LEGACY], ids=["new", "again"])
def test_the_revision_a_host_names_is_the_one_it_gets(revision: Revision, session: Revision | None) -> None:
    params = f'{{"protocolVersion":"{revision}","capabilities":{{"roots":{{}}}},"clientInfo":{{"name":"h"}}}}'
    peer = Peer(revision=revision, capabilities={"roots": {}}, info={"name": "h"})
    assert decode(request("initialize", params, '"i"'), session) == OpenSession(id="i", peer=peer)


@pytest.mark.parametrize("offered", ["2026-07-28", "2025-11-26", "1", "", "\\ud800", "2025-11-25 "])
def test_any_other_revision_is_answered_with_the_newest(offered: str) -> None:
    # V-INIT-1, T-10.
    intent = decode(request("initialize", f'{{"protocolVersion":"{offered}"}}'), None)
    assert intent == OpenSession(id=1, peer=Peer(revision=NEWEST_LEGACY, capabilities={}, info={}))


BAD_HELLOS: dict[str, tuple[str | None, str]] = {
    "no params": (None, "protocolVersion must be a string"),
    "params that are a list": ("[]", "protocolVersion must be a string"),
    "no revision": ('{"capabilities":{}}', "protocolVersion must be a string"),
    "a revision that is a number": ('{"protocolVersion":20251125}', "protocolVersion must be a string"),
    "capabilities that are a list": ('{"protocolVersion":"1","capabilities":[]}', "capabilities must be an object"),
    "info that is a text": ('{"protocolVersion":"1","clientInfo":"h"}', "clientInfo must be an object"),
}


@pytest.mark.parametrize(("params", "told"), BAD_HELLOS.values(), ids=BAD_HELLOS)
def test_a_handshake_of_wrong_types_is_refused(params: str | None, told: str) -> None:
    with pytest.raises(InvalidParams, match=f"^{told}$"):
        decode(request("initialize", params), None)


@pytest.mark.parametrize("nothing", ["", ',"capabilities":null,"clientInfo":null'], ids=["absent", "null"])
def test_a_host_that_says_nothing_about_itself_is_served(nothing: str) -> None:
    intent = decode(request("initialize", f'{{"protocolVersion":"2025-06-18"{nothing}}}'), None)
    assert intent == OpenSession(id=1, peer=Peer(revision=Revision.R2025_06_18, capabilities={}, info={}))


def test_a_host_may_declare_so_much_and_no_more() -> None:
    most = '{"experimental":"' + "x" * (MAX_CAPABILITIES - len('{"experimental":""}')) + '"}'
    assert isinstance(
        decode(request("initialize", f'{{"protocolVersion":"1","capabilities":{most}}}'), None), OpenSession
    )
    with pytest.raises(InvalidParams, match=r"^The capabilities are longer than 16384 characters$"):
        decode(request("initialize", f'{{"protocolVersion":"1","capabilities":{most[:-1]} }}}}'), None)


def test_of_what_a_host_says_it_is_its_name_and_version_are_kept() -> None:
    info = f'{{"name":"h","version":"{"1" * 1000}","title":"t","icons":[{{"src":"data:,{"x" * 100_000}"}}]}}'
    intent = decode(request("initialize", f'{{"protocolVersion":"1","clientInfo":{info}}}'), None)
    assert isinstance(intent, OpenSession)
    assert intent.peer.info == {"name": "h", "version": "1" * 512}


def test_what_a_host_says_it_is_in_very_many_parts_is_not_read() -> None:
    info = json.dumps({"name": "h", "parts": [0] * 100_000})
    intent = decode(request("initialize", f'{{"protocolVersion":"1","clientInfo":{info}}}'), None)
    assert isinstance(intent, OpenSession)
    assert intent.peer.info == {}


OTHERS = [
    request("ping"),
    request("tools/call", '{"name":"t"}'),
    request("nonsense"),
    note("initialize", '{"protocolVersion":"2025-11-25"}'),
    note("notifications/initialized"),
    note("notifications/cancelled", '{"requestId":1}'),
    '{"jsonrpc":"2.0","id":1,"result":{}}',
    '{"jsonrpc":"2.0","id":"q","result":{}}',
    note("notifications/roots/list_changed"),
]


@pytest.mark.parametrize("text", OTHERS)
def test_nothing_but_initialize_comes_before_a_session(text: str) -> None:
    with pytest.raises(SessionRequired, match=r"^The message needs a session: send initialize first$"):
        decode(text, None)


# --- what needs no task --------------------------------------------------------------------------------------------

ASKED: dict[str, tuple[str, LegacyIntent]] = {
    "ping": (request("ping"), AnswerPing(id=1)),
    "ping with params": (request("ping", '{"_meta":{}}', '"p"'), AnswerPing(id="p")),
    "a cancelled call": (note("notifications/cancelled", '{"requestId":7,"reason":"x"}'), CancelCall(request=7)),
    "a cancelled call by text": (note("notifications/cancelled", '{"requestId":"7"}'), CancelCall(request="7")),
    "a cancellation of nothing": (note("notifications/cancelled"), Ignore()),
    "a cancellation of null": (note("notifications/cancelled", '{"requestId":null}'), Ignore()),
    "a cancellation of true": (note("notifications/cancelled", '{"requestId":true}'), Ignore()),
    "a cancellation of a list": (note("notifications/cancelled", "[1]"), Ignore()),
    "initialized": (note("notifications/initialized"), Ignore()),
    "progress": (note("notifications/progress", '{"progressToken":1,"progress":1}'), Ignore()),
    "an unknown notification": (note("nonsense"), Ignore()),
    "a result": ('{"jsonrpc":"2.0","id":1,"result":{}}', Ignore()),
    "an error": ('{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}', Ignore()),
}


@pytest.mark.parametrize(("text", "intent"), ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("revision", [NEWEST_LEGACY, Revision.R2024_11_05])
def test_a_message_of_any_session_asks_the_same(text: str, intent: LegacyIntent, revision: Revision) -> None:
    assert decode(text, revision) == intent


RELAYED = sorted(RELAYED_METHODS - {"tools/call"})


@pytest.mark.parametrize("method", RELAYED)
def test_a_request_that_is_the_servers_to_answer_is_relayed(method: str) -> None:
    assert decode(request(method, '{ "uri" : "\\u00e9" }')) == Relay(
        id=1, method=method, params=Params('{ "uri" : "\\u00e9" }'), progress_token=None
    )
    assert decode(request(method, None, '"é"')) == Relay(id="é", method=method, params=None, progress_token=None)


def test_a_relayed_request_gives_up_its_token_and_its_task() -> None:
    intent = decode(request("prompts/get", '{"task":7,"name":"p","_meta":{"progressToken":"tok"}}'))
    params = Params('{"name":"p","_meta":{"progressToken":', "}}")
    assert intent == Relay(id=1, method="prompts/get", params=params, progress_token="tok")


@pytest.mark.parametrize("params", ["[]", "null", "1", '"x"', "true"])
@pytest.mark.parametrize("method", ["ping", "tools/call", "tools/list", "tasks/get", "nonsense"])
def test_params_that_are_no_object_are_refused(method: str, params: str) -> None:
    with pytest.raises(InvalidParams, match=r"^params must be an object$"):
        decode(request(method, params))


@pytest.mark.parametrize(
    "method", ["nonsense", "", "tasks/list", "tasks/update", "server/discover", "Ping", "roots/list", "events/list"]
)
def test_an_unknown_method_is_never_relayed(method: str) -> None:
    # Decisions d; tasks/list is not declared (L-CAP-2).
    for extensions in (ExtensionPolicy(), ExtensionPolicy(others=True)):
        with pytest.raises(UnknownMethod, match=r"^Method not found$"):
            decode(request(method), extensions=extensions)


def test_a_request_of_a_carried_extension_is_relayed_at_mounts_without_tasks_too() -> None:
    # X-EXT-20.
    sent = request("skills/get", '{ "name" : "\\u00e9","task":1,"_meta":{"progressToken":"tok"} }')
    params = Params('{ "name" : "\\u00e9","_meta":{"progressToken":', "} }")
    for revision in LEGACY:
        intent = decode(sent, revision, offers_tasks=False)
        assert intent == Relay(id=1, method="skills/get", params=params, progress_token="tok")


def test_a_request_of_an_extension_that_does_not_cross_is_unknown() -> None:
    modern = Extension(methods=frozenset({"thing/do"}), eras=frozenset({Era.MODERN}))
    for extensions in (ExtensionPolicy(allowed={"com.example/thing": modern}), ExtensionPolicy(allowed={})):
        for method in ("thing/do", "skills/get"):
            with pytest.raises(UnknownMethod, match=r"^Method not found$"):
                decode(request(method), extensions=extensions)


# --- calls and tasks -----------------------------------------------------------------------------------------------


def a_call(wants_task: bool, ttl: timedelta | None = None, **more: Any) -> CallTool:
    kept = '{"name":"t"}' if wants_task else None
    fields: dict[str, Any] = {"params": Params('{"name":"t"}'), "stored_params": kept, "progress_token": None}
    return CallTool(id=1, tool="t", wants_task=wants_task, ttl=ttl, **{**fields, **more})


CALLS: dict[str, tuple[str, CallTool]] = {
    "plain": ('{"name":"t"}', a_call(False)),
    "a task": ('{"name":"t","task":{}}', a_call(True)),
    "a task for a while": ('{"name":"t","task":{"ttl":5}}', a_call(True, timedelta(milliseconds=5))),
    "a task for no time": ('{"task":{"ttl":0},"name":"t"}', a_call(True, timedelta())),
    "a task with a token": (
        '{"name":"t","_meta":{"progressToken":0},"task":{"ttl":null}}',
        a_call(
            True,
            params=Params('{"name":"t","_meta":{"progressToken":', "}}"),
            stored_params='{"name":"t","_meta":{}}',
            progress_token=0,
        ),
    ),
    "a call by a key": (
        '{"name":"t","_meta":{"io.taskgate/idempotency-key":"k"}}',
        a_call(False, params=Params('{"name":"t","_meta":{}}'), idempotency_key="k"),
    ),
    "a task by a key": (
        '{"name":"t","_meta":{"io.taskgate/idempotency-key":"k","progressToken":0},"task":{}}',
        a_call(
            True,
            params=Params('{"name":"t","_meta":{"progressToken":', "}}"),
            stored_params='{"name":"t","_meta":{}}',
            progress_token=0,
            idempotency_key="k",
        ),
    ),
}


@pytest.mark.parametrize(("params", "call"), CALLS.values(), ids=CALLS)
def test_a_call_says_whether_it_wants_to_be_a_task(params: str, call: CallTool) -> None:
    assert decode(request("tools/call", params)) == call


WITHOUT_TASKS = [(revision, True) for revision in OLDER] + [(revision, False) for revision in LEGACY]


@pytest.mark.parametrize(("revision", "offers_tasks"), WITHOUT_TASKS)
@pytest.mark.parametrize("task", ["{}", '{"ttl":-1}', "null", "7"])
def test_without_tasks_the_wish_is_cut_out_and_ignored(revision: Revision, offers_tasks: bool, task: str) -> None:
    # L-TOOL-5.
    text = request("tools/call", f'{{"name":"t","task":{task}}}')
    assert decode(text, revision, offers_tasks=offers_tasks) == a_call(False)


@pytest.mark.parametrize(("revision", "offers_tasks"), WITHOUT_TASKS)
@pytest.mark.parametrize("method", TASKS_METHODS)
def test_without_tasks_their_methods_are_unknown(revision: Revision, offers_tasks: bool, method: str) -> None:
    with pytest.raises(UnknownMethod):
        decode(request(method, f'{{"taskId":"{ID}"}}'), revision, offers_tasks=offers_tasks)


@pytest.mark.parametrize(("method", "kind"), TASKS_METHODS.items())
def test_a_task_is_asked_for_by_its_id(method: str, kind: Any) -> None:
    assert decode(request(method, f'{{"taskId":"{ID}"}}', '"x"')) == kind(id="x", task=ID)
    with pytest.raises(TaskNotFound):
        decode(request(method, '{"taskId":"no"}'))
    with pytest.raises(TaskNotFound):
        decode(request(method))


BAD_CALLS = [
    ("{}", InvalidParams),
    (None, InvalidParams),
    ('{"name":"t","task":[]}', InvalidParams),
    ('{"name":"t","task":{"ttl":1.5}}', InvalidParams),
    ('{"name":"t","arguments":[]}', InvalidParams),
    ('{"name":"t","_meta":7}', InvalidParams),
    ('{"name":"t","_meta":{"progressToken":null}}', InvalidParams),
    ('{"name":"t","_meta":{"io.taskgate/idempotency-key":""}}', InvalidParams),
    ('{"name":"\\ud800"}', MalformedMessage),
]


@pytest.mark.parametrize(("params", "refusal"), BAD_CALLS)
def test_a_call_of_wrong_types_is_refused(params: str | None, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        decode(request("tools/call", params))


# --- lists ---------------------------------------------------------------------------------------------------------


def listing(params: str | None, revision: Revision = NEWEST_LEGACY, *, offers_tasks: bool = True) -> LegacyIntent:
    peer = Peer(revision=revision, capabilities={}, info={})
    message = parse(request("tasks/list", params, '"x"').encode(), max_depth=64)
    return LISTING.decode(message, peer, offers_tasks=offers_tasks, extensions=ExtensionPolicy())


@pytest.mark.parametrize(
    ("params", "cursor"), [(None, None), ("{}", None), ('{"cursor":""}', ""), ('{"cursor":"c"}', "c")]
)
def test_where_callers_can_be_told_apart_they_may_list_their_tasks(params: str | None, cursor: str | None) -> None:
    # L-LIST-1.
    assert listing(params) == ListTasks(id="x", where=ALL_TASKS, order=NEWEST_FIRST, cursor=cursor)


def test_a_list_may_be_filtered_and_ordered() -> None:
    # F-FILTER-2; which criteria there are is for test_filters.
    intent = listing('{"filter":{"taskIds":["a"],"order":"asc"},"cursor":"c"}')
    where, order = TaskFilter(ids=frozenset({"a"})), TaskOrder(descending=False)
    assert intent == ListTasks(id="x", where=where, order=order, cursor="c")


@pytest.mark.parametrize("params", ['{"cursor":7}', '{"cursor":null}', "[]", '{"status":"working"}'])
def test_a_list_that_is_asked_for_wrongly_is_refused(params: str) -> None:
    with pytest.raises(InvalidParams):
        listing(params)


@pytest.mark.parametrize(("revision", "offers_tasks"), WITHOUT_TASKS)
def test_without_tasks_there_is_no_list_of_them(revision: Revision, offers_tasks: bool) -> None:
    with pytest.raises(UnknownMethod, match=r"^Method not found$"):
        listing("{}", revision, offers_tasks=offers_tasks)


def test_the_other_methods_of_tasks_are_the_same_with_lists_and_without() -> None:
    peer = Peer(revision=NEWEST_LEGACY, capabilities={}, info={})
    for method in TASKS_METHODS:
        text = request(method, f'{{"taskId":"{ID}"}}')
        message = parse(text.encode(), max_depth=64)
        assert LISTING.decode(message, peer, offers_tasks=True, extensions=ExtensionPolicy()) == decode(text)
