"""Messages of legacy hosts are decoded, and their welcome is encoded."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.memory_kept import memory_kept
from helpers.schema import RELATED_TASK, check_server_message
from taskgate.domain.listing import ALL_TASKS, NEWEST_FIRST, TaskFilter, TaskOrder
from taskgate.domain.record import InputRequest, TaskRecord
from taskgate.domain.versions import LEGACY, NEWEST_LEGACY, Era, Peer, Revision
from taskgate.errors import InvalidParams, MalformedMessage, SessionRequired, TaskNotFound, UnknownMethod
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.extensions import Extension, ExtensionPolicy
from taskgate.protocol.host_requests import (
    AnswerInput,
    AnswerPing,
    AnswerQuestion,
    AwaitTask,
    CallTool,
    CancelCall,
    CancelTask,
    GetTask,
    Ignore,
    LegacyIntent,
    ListTasks,
    NotifyServer,
    OpenSession,
    Relay,
    ReportProgress,
)
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import TASK_CAPABILITY, LegacyDownstream
from taskgate.protocol.legacy.listing import FILTER_CAPABILITY
from taskgate.protocol.messages import MAX_CAPABILITIES, Notification, Params
from taskgate.protocol.server_messages import Question
from taskgate.protocol.vocabulary import RELAYED_METHODS

# --- requests ---------------------------------------------------------------------------------------------------------


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
    # tasks/list is not declared (L-CAP-2).
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


# --- questions --------------------------------------------------------------------------------------------------------


RecordMaker = Callable[..., TaskRecord]


def decode_text(text: str, revision: Revision = NEWEST_LEGACY, *, offers_tasks: bool = True) -> LegacyIntent:
    peer = Peer(revision=revision, capabilities={}, info={})
    message = parse(text.encode(), max_depth=64)
    return DIALECT.decode(message, peer, offers_tasks=offers_tasks, extensions=ExtensionPolicy())


def notification_of(method: str, params: str) -> Notification:
    message = parse(f'{{"jsonrpc":"2.0","method":"{method}","params":{params}}}'.encode(), max_depth=64)
    assert isinstance(message, Notification)
    return message


# --- what a host says ----------------------------------------------------------------------------------------------

PROGRESS = notification_of("notifications/progress", '{"progressToken":"q","progress":1}')
ROOTS = notification_of("notifications/roots/list_changed", "{}")
STATUS = notification_of("notifications/tasks/status", "{}")
SAID: dict[str, tuple[str, LegacyIntent]] = {
    "an answer": (
        '{"jsonrpc":"2.0","id":"q","error":{"code":-1,"message":"no"}}',
        AnswerQuestion(id="q", answer='{"error":{"code":-1,"message":"no"}}'),
    ),
    "an answer to nothing": ('{"jsonrpc":"2.0","id":7,"result":{}}', Ignore()),
    "progress": (PROGRESS.text, ReportProgress(id="q", notification=PROGRESS)),
    "other roots": (ROOTS.text, NotifyServer(notification=ROOTS)),
    "a task of its own": (STATUS.text, NotifyServer(notification=STATUS)),
    "what is none of its business": (notification_of("notifications/message", "{}").text, Ignore()),
}


@pytest.mark.parametrize(("text", "intent"), SAID.values(), ids=SAID)
@pytest.mark.parametrize("revision", LEGACY)
@pytest.mark.parametrize("offers_tasks", [True, False])
def test_a_host_says_the_same_in_any_session(
    text: str, intent: LegacyIntent, revision: Revision, offers_tasks: bool
) -> None:
    assert decode_text(text, revision, offers_tasks=offers_tasks) == intent


# --- what a host is told -------------------------------------------------------------------------------------------


def test_what_concerns_a_task_names_it(make_record: RecordMaker) -> None:
    # L-PROG-1; the shapes are with `questions`.
    record = make_record()
    related = {RELATED_TASK: {"taskId": record.id}}
    noticed = DIALECT.notification(
        notification_of("notifications/progress", '{"progressToken":41,"progress":1}'), "p", record.id
    )
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
    assert decode_text(answer) == AnswerInput(task=record.id, key="input-2", answer='{"result":{"roots":[]}}')
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


# --- the welcome ------------------------------------------------------------------------------------------------------


TASKS = f'"tasks":{TASK_CAPABILITY}'


def welcome(
    capabilities: str,
    *,
    revision: Revision = NEWEST_LEGACY,
    offers_tasks: bool = True,
    instructions: str | None = None,
    server: Revision = Revision.R2024_11_05,
    extensions: ExtensionPolicy = ExtensionPolicy(),  # noqa: B008 - a value
) -> str:
    intent = OpenSession(id="i", peer=Peer(revision=revision, capabilities={}, info={}))
    # What the server negotiated is its own affair: the two handshakes are independent.
    peer = Peer(revision=server, capabilities=json.loads(capabilities), info={"name": "server"})
    told = ServerDescription(peer=peer, capabilities=capabilities, instructions=instructions)
    return DIALECT.welcome(intent, told, offers_tasks=offers_tasks, extensions=extensions)


def whole(revision: Revision, capabilities: str, told: str = "") -> str:
    info = '{"name":"taskgate","version":"0.1.0"}'
    meta = '"_meta":{"io.taskgate/gateway":{"version":"0.1.0"}}'
    result = f'{{"protocolVersion":"{revision}","capabilities":{capabilities},"serverInfo":{info}{told},{meta}}}'
    return f'{{"jsonrpc":"2.0","id":"i","result":{result}}}'


ODD = r'"logging":{ "\u00e9":{"a":1E400,"a":123456789012345678901234567890}}'
UI = r'"io.modelcontextprotocol\/ui" : {"\u0061": 1.0}'

# The server's capabilities, what a host with tasks reads, what any other host reads.
CAPABILITIES: dict[str, tuple[str, str, str]] = {
    "nothing": ("{}", "{}", "{}"),
    "no tools": (f"{{ {ODD} }}", f"{{ {ODD} }}", f"{{ {ODD} }}"),
    "tools": ('{"tools":{}}', f'{{{TASKS},"tools":{{}}}}', '{"tools":{}}'),
    "tools and odd things": (
        f'{{ "tools" : {{"listChanged":true}} , {ODD} }}',
        f'{{{TASKS}, "tools" : {{"listChanged":true}} , {ODD} }}',
        f'{{ "tools" : {{"listChanged":true}} , {ODD} }}',
    ),
    "tasks of the server": (
        '{"tasks":{"list":{},"cancel":{}}, "tools":{}}',
        f'{{{TASKS},"tools":{{}}}}',
        '{"tools":{}}',
    ),
    "tasks of the server without tools": ('{"tasks":{"list":{}}}', "{}", "{}"),
    "tasks that are null": ('{"tools":{},"tasks":null}', f'{{{TASKS},"tools":{{}}}}', '{"tools":{}}'),
    "extensions": (
        '{"extensions":{"io.modelcontextprotocol/tasks":{}},"prompts":{}}',
        '{"prompts":{}}',
        '{"prompts":{}}',
    ),
    "extensions that cross": (
        f'{{"extensions":{{{UI} ,"com.example/x":{{}},"io.modelcontextprotocol/tasks":{{}}}},"tools":{{}}}}',
        f'{{{TASKS},"extensions":{{{UI}}},"tools":{{}}}}',
        f'{{"extensions":{{{UI}}},"tools":{{}}}}',
    ),
    "promises of others": (
        '{"prompts":{},"events":{},"acme":{"a":1},"experimental":{"x":{}}}',
        '{"prompts":{}}',
        '{"prompts":{}}',
    ),
    "all of them": (
        '{"prompts":{},"extensions":{},"tasks":{},"tools":{}}',
        f'{{{TASKS},"prompts":{{}},"extensions":{{}},"tools":{{}}}}',
        '{"prompts":{},"extensions":{},"tools":{}}',
    ),
}


@pytest.mark.parametrize(("declared", "told", "_"), CAPABILITIES.values(), ids=CAPABILITIES)
def test_a_host_with_tasks_is_told_of_them_where_there_are_tools(declared: str, told: str, _: str) -> None:
    # V-INIT-4, L-CAP-1.
    text = welcome(declared)
    assert text == whole(NEWEST_LEGACY, told)
    check_server_message(text, request_method="initialize")


REVISIONS_WITHOUT_TASKS = [(revision, True) for revision in LEGACY if not revision.has_tasks]
REVISIONS_WITHOUT_TASKS += [(revision, False) for revision in LEGACY]


@pytest.mark.parametrize(("revision", "offers_tasks"), REVISIONS_WITHOUT_TASKS)
@pytest.mark.parametrize(("declared", "_", "told"), CAPABILITIES.values(), ids=CAPABILITIES)
def test_any_other_host_is_told_nothing_of_them(
    declared: str, _: str, told: str, revision: Revision, offers_tasks: bool
) -> None:
    text = welcome(declared, revision=revision, offers_tasks=offers_tasks)
    assert text == whole(revision, told)
    check_server_message(text, request_method="initialize")


def test_what_a_revision_does_not_define_crosses_where_others_do_and_between_servers_and_hosts_of_one_era() -> None:
    # X-EXT-5, X-EXT-55.
    declared = '{"prompts":{},"acme":{"a": 1},"experimental":{"x":{}},"extensions":{"com.example/x":{}}}'
    others = ExtensionPolicy(others=True)
    assert welcome(declared, extensions=others) == whole(NEWEST_LEGACY, declared)
    assert welcome(declared, extensions=others, server=Revision.R2026_07_28) == whole(NEWEST_LEGACY, '{"prompts":{}}')


def test_hosts_that_cannot_be_told_apart_are_offered_no_list() -> None:
    # L-CAP-1, L-CAP-2.
    message = json.loads(welcome('{"tools":{},"tasks":{"list":{}}}'))
    assert message["result"]["capabilities"]["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}


def test_hosts_that_can_be_told_apart_are_offered_a_list() -> None:
    # L-CAP-1, L-CAP-2.
    peer = Peer(revision=NEWEST_LEGACY, capabilities={"tools": {}}, info={})
    server = ServerDescription(peer=peer, capabilities='{"tools":{}}', instructions=None)
    for revision in LEGACY:
        intent = OpenSession(id="i", peer=Peer(revision=revision, capabilities={}, info={}))
        text = LegacyDownstream("0.1.0", lists=True).welcome(
            intent, server, offers_tasks=True, extensions=ExtensionPolicy()
        )
        capabilities = json.loads(text)["result"]["capabilities"]
        tasks = {
            "tasks": {
                "cancel": {},
                "list": {"filter": json.loads(FILTER_CAPABILITY)},
                "requests": {"tools": {"call": {}}},
            }
        }
        assert capabilities == {"tools": {}, **(tasks if revision.has_tasks else {})}
        check_server_message(text, request_method="initialize")


@pytest.mark.parametrize("instructions", ['""', r'"Use \u00e9 \ud83d\ude00\/\n"', '"é"'])
def test_the_instructions_are_the_servers_to_the_byte(instructions: str) -> None:
    text = welcome('{"tools":{}}', instructions=instructions)
    assert text == whole(NEWEST_LEGACY, f'{{{TASKS},"tools":{{}}}}', f',"instructions":{instructions}')
    check_server_message(text, request_method="initialize")


def test_what_a_server_declared_is_not_kept() -> None:
    def greet() -> None:
        for number in range(8):
            welcome(f'{{"tools":{{}},"experimental":{{"x":"{number}{"x" * 2**20}"}}}}')

    assert memory_kept(greet) < 2**18
