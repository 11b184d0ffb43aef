"""Messages to and from modern servers."""

import json
from typing import Any

import pytest

from requirements import covers
from taskgate.domain.events import CallSucceeded
from taskgate.domain.record import TaskStatus
from taskgate.domain.versions import Era, Peer, Revision
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import MAX_WELCOME
from taskgate.protocol.extensions import BUILT_IN, EVENTS, Extension, ExtensionPolicy
from taskgate.protocol.extensions import UI as UI_EXTENSION
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.modern import requests
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.protocol.server_messages import (
    CallProgress,
    CallResponse,
    Question,
    RequestDraft,
    ServerSubscription,
    ServerTask,
    SessionNotification,
    SubscriptionGrant,
    TaskNotification,
)
from unit.protocol.modern.judge import check, check_task, read

# --- messages ---------------------------------------------------------------------------------------------------------


DIALECT = ModernUpstream("0.1.0", ExtensionPolicy())
HOST = Peer(revision=Revision.R2026_07_28, capabilities={"roots": {}}, info={})
META = "io.modelcontextprotocol/"
ANSWERS = '{"a":{"roots":[]}}'


def response(result: Any) -> Response:
    found = parse(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode(), max_depth=64)
    assert isinstance(found, Response)
    return found


def heard(method: str, **params: Any) -> Any:
    return DIALECT.decode(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode(), HOST)


def test_a_host_that_declares_tasks_is_known_by_it_and_so_is_a_server_that_asks_for_them() -> None:
    assert not DIALECT.host_declares_tasks(None)
    assert not DIALECT.host_declares_tasks(HOST)
    tasks = {"extensions": {f"{META}tasks": {}}}
    assert DIALECT.host_declares_tasks(HOST._replace(capabilities=tasks))
    assert not DIALECT.needs_tasks(response({}))


# --- what is sent


@pytest.mark.parametrize(
    ("written", "definition"),
    [
        (DIALECT.discover(1, HOST), "DiscoverRequest"),
        (DIALECT.discover(1, None), "DiscoverRequest"),
        (DIALECT.list_tools(1, None, HOST), "ListToolsRequest"),
        (DIALECT.list_tools(1, '"next"', HOST), "ListToolsRequest"),
        (DIALECT.listen(1, ServerSubscription(tools=True, uris=("a:b",)), HOST), "SubscriptionsListenRequest"),
        (DIALECT.request(1, RequestDraft(method="tools/call", params=Params('{"name":"t"}')), HOST), "CallToolRequest"),
    ],
)
@covers("V-META-8", "H-MOD-1")
def test_requests_are_as_the_schema_has_them(written: Any, definition: str) -> None:
    found = read(written.message)
    check(found, definition)
    meta = found["params"]["_meta"]
    assert meta[f"{META}clientInfo"] == {"name": "taskgate", "version": "0.1.0"}
    assert written.headers["MCP-Protocol-Version"] == meta[f"{META}protocolVersion"]
    assert written.headers["Mcp-Method"] == found["method"]


@pytest.mark.parametrize(
    ("written", "definition", "params"),
    [
        (DIALECT.get_task(1, "n/1", HOST), "GetTaskRequest", {}),
        (DIALECT.cancel_task(1, "n/1", None), "CancelTaskRequest", {}),
        (DIALECT.update_task(1, "n/1", ANSWERS, HOST), "UpdateTaskRequest", {"inputResponses": {"a": {"roots": []}}}),
    ],
)  # fmt: skip
@covers("M-NEG-8", "H-MOD-2")
def test_a_request_about_a_task_names_it_in_its_header_and_declares_the_extension(
    written: Any, definition: str, params: Any
) -> None:
    found = read(written.message)
    check_task(found, definition)
    check(found["params"], "RequestParams")
    meta = found["params"].pop("_meta")
    assert found["params"] == {"taskId": "n/1", **params}
    assert meta[f"{META}clientCapabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
    assert written.headers == {
        "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": found["method"], "Mcp-Name": "n/1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wants", "declares"), [(ServerSubscription(tools=True), False), (ServerSubscription(tasks=("n1",)), True)]
)
@covers("M-NOTIF-1")
def test_a_listen_declares_the_extension_where_it_names_tasks(wants: ServerSubscription, declares: bool) -> None:
    meta = read(DIALECT.listen(1, wants, HOST).message)["params"]["_meta"]
    assert ("extensions" in meta[f"{META}clientCapabilities"]) is declares


UI = {f"{META}ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
TASKS = {f"{META}tasks": {}}
EVENTS_CROSS = ModernUpstream(
    "0.1.0", ExtensionPolicy(allowed={EVENTS: BUILT_IN[EVENTS], UI_EXTENSION: BUILT_IN[UI_EXTENSION]})
)


def told_of(host: Peer | None, *, follows_tasks: bool = False, dialect: ModernUpstream = DIALECT) -> Any:
    found = asked_for(host, follows_tasks=follows_tasks, dialect=dialect)
    check(found, "CallToolRequest")
    return found["params"]["_meta"][f"{META}clientCapabilities"]


def asked_for(host: Peer | None, *, follows_tasks: bool = False, dialect: ModernUpstream = DIALECT) -> Any:
    """A call for a host, as a server gets it."""
    draft = RequestDraft(method="tools/call", params=Params('{"name":"t"}'), follows_tasks=follows_tasks)
    return read(dialect.request(1, draft, host).message)


@pytest.mark.parametrize("revision", [Revision.R2025_11_25, Revision.R2026_07_28])
def test_a_server_is_told_what_crosses_of_its_host_beside_what_it_can_be_asked(revision: Revision) -> None:
    # X-EXT-6, X-APP-1.
    declares = {"roots": {}, "tasks": {"list": {}}, "x": {}, "extensions": {**UI, **TASKS, "com.example/x": {}}}
    host = Peer(revision=revision, capabilities=declares, info={})
    assert told_of(host) == {"roots": {}, "extensions": UI}
    assert told_of(host, follows_tasks=True) == {"roots": {}, "extensions": {**UI, **TASKS}}


@covers("M-NEG-8")
def test_a_server_is_told_of_tasks_where_they_are_followed_for_nobody_too() -> None:
    assert told_of(None) == told_of(HOST._replace(capabilities={})) == {}
    assert told_of(None, follows_tasks=True) == {"extensions": TASKS}


def test_what_a_server_is_told_of_one_host_it_is_not_told_of_another() -> None:
    hosts = [HOST._replace(capabilities={"extensions": {f"{META}ui": {"number": number}}}) for number in range(600)]
    calls = [asked_for(host)["params"]["_meta"] for host in (*hosts, *hosts)]
    told = [meta[f"{META}clientCapabilities"]["extensions"][f"{META}ui"]["number"] for meta in calls]
    assert told == [*range(600), *range(600)]


def test_what_a_server_is_told_of_a_host_is_made_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    host, made = HOST._replace(capabilities={"roots": {}}), []
    real = requests.encode_capabilities
    monkeypatch.setattr(
        requests, "encode_capabilities", lambda *asked, **more: made.append(asked) or real(*asked, **more)
    )
    assert [told_of(host, follows_tasks=follows) for follows in (False, False, True, True)] == [
        *[{"roots": {}}] * 2,
        *[{"roots": {}, "extensions": TASKS}] * 2,
    ]
    assert len(made) == 2


def test_the_next_page_is_asked_for_by_its_cursor() -> None:
    assert read(DIALECT.list_tools(1, '"next"', None).message)["params"]["cursor"] == "next"
    assert "cursor" not in read(DIALECT.list_tools(1, None, None).message)["params"]


# --- what is heard


def test_a_response_is_the_answer_to_what_it_names() -> None:
    found = DIALECT.decode(b'{"jsonrpc":"2.0","id":3,"result":{}}', HOST)
    assert isinstance(found, CallResponse)
    assert found.response.id == 3


def test_progress_is_of_the_call_that_has_the_token() -> None:
    found = heard("notifications/progress", progressToken=3, progress=1)
    assert isinstance(found, CallProgress)
    assert (found.token, found.notification.params["progress"].value) == (3, 1)


@pytest.mark.parametrize("token", ["3", True, None])
def test_progress_under_a_token_that_is_none_of_ours_is_dropped(token: Any) -> None:
    assert heard("notifications/progress", progressToken=token, progress=1) is None


@pytest.mark.parametrize(
    "method",
    [
        "notifications/message",
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    ],
)
def test_a_notification_loses_what_says_of_its_stream(method: str) -> None:
    found = heard(method, uri="a:b", _meta={f"{META}subscriptionId": 4, "keep": 1})
    assert isinstance(found, SessionNotification)
    assert found.notification.method == method
    assert read(found.notification.params_text) == {"uri": "a:b", "_meta": {"keep": 1}}


def test_a_notification_that_says_nothing_of_its_stream_stays_to_the_byte() -> None:
    text = b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1.0, "_meta": {"a": 1}}}'
    found = DIALECT.decode(text, HOST)
    assert isinstance(found, SessionNotification)
    assert found.notification.text == text.decode()


@pytest.mark.parametrize(
    ("told", "uris", "tasks"),
    [
        ({"resourceSubscriptions": ["a:b", 3, "c:d"]}, {"a:b", "c:d"}, set()),
        ({"taskIds": ["n1", 3], "resourceSubscriptions": ["a:b"]}, {"a:b"}, {"n1"}),
        ({"toolsListChanged": True}, set(), set()),
        ({"resourceSubscriptions": "a:b", "taskIds": "n1"}, set(), set()),
        ([], set(), set()),
    ],
)
def test_the_first_message_of_a_listen_tells_what_is_granted(told: Any, uris: set[str], tasks: set[str]) -> None:
    found = heard("notifications/subscriptions/acknowledged", notifications=told)
    assert found == SubscriptionGrant(frozenset(uris), frozenset(tasks))


@pytest.mark.parametrize(
    ("told", "filters"),
    [
        ({"eventsListChanged": True, "toolsListChanged": True}, {"eventsListChanged"}),
        ({"eventsListChanged": 1}, set()),
        ({"thingChanged": True}, set()),
        ([], set()),
    ],
)
def test_the_first_message_of_a_listen_tells_which_members_of_extensions_are_granted(
    told: Any, filters: set[str]
) -> None:
    # X-EXT-24.
    message = json.dumps(
        {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {"notifications": told}}
    ).encode()
    assert EVENTS_CROSS.decode(message, HOST) == SubscriptionGrant(frozenset(), frozenset(), frozenset(filters))
    assert DIALECT.decode(message, HOST) == SubscriptionGrant(frozenset())


ACTIVE = "notifications/events/active"


@pytest.mark.parametrize(("kept", "written"), [("4", "4"), ('"\\u0034"', '"\\u0034"')])
def test_a_notification_of_an_extension_keeps_the_name_of_its_stream_and_nothing_else_of_its_hop(
    kept: str, written: str
) -> None:
    # X-EXT-23.
    key = f"{META}subscriptionId"
    meta = f'{{"{META}serverInfo":{{}},"{key}": {kept} ,"a/b":1.0}}'
    text = f'{{"jsonrpc":"2.0","method":"{ACTIVE}","params":{{"cursor":null,"_meta":{meta}}}}}'
    found = EVENTS_CROSS.decode(text.encode(), HOST)
    assert isinstance(found, SessionNotification)
    assert found.notification.params_text == f'{{"cursor":null,"_meta":{{"{key}": {written} ,"a/b":1.0}}}}'


@pytest.mark.parametrize("params", ["{}", '{"_meta":{}}', '{"_meta":{"a":1},"data":[1e999]}'])
def test_a_notification_of_an_extension_that_names_no_stream_stays_to_the_byte(params: str) -> None:
    text = f'{{"jsonrpc": "2.0", "method":"{ACTIVE}","params": {params}}}'
    found = EVENTS_CROSS.decode(text.encode(), HOST)
    assert isinstance(found, SessionNotification)
    assert found.notification.text == text


def test_a_notification_of_an_extension_that_names_no_stream_loses_what_it_says_of_its_hop() -> None:
    text = f'{{"jsonrpc":"2.0","method":"{ACTIVE}","params":{{"_meta":{{"a":1,"{META}serverInfo":{{}}}}}}}}'
    found = EVENTS_CROSS.decode(text.encode(), HOST)
    assert isinstance(found, SessionNotification)
    assert found.notification.params_text == '{"_meta":{"a":1}}'


def test_a_notification_of_an_extension_names_no_stream_to_a_host_of_the_other_era() -> None:
    # X-EXT-23: there it would be a name of nothing.
    thing = Extension(notifications=frozenset({"notifications/thing/changed"}), eras=frozenset(Era))
    dialect = ModernUpstream("0.1.0", ExtensionPolicy(allowed={"com.example/thing": thing}))
    params = f'{{"_meta":{{"{META}subscriptionId":4,"a":1}}}}'
    text = f'{{"jsonrpc":"2.0","method":"notifications/thing/changed","params":{params}}}'.encode()
    for revision, told in ((Revision.R2025_11_25, '{"_meta":{"a":1}}'), (Revision.R2026_07_28, params)):
        found = dialect.decode(text, HOST._replace(revision=revision))
        assert isinstance(found, SessionNotification)
        assert found.notification.params_text == told


@pytest.mark.parametrize(
    ("dialect", "host"),
    [(EVENTS_CROSS, None), (DIALECT, HOST), (EVENTS_CROSS, HOST._replace(revision=Revision.R2025_11_25))],
    ids=["nobody", "one whom it does not cross to", "one of the other era"],
)
def test_a_notification_of_an_extension_is_for_nobody_whom_it_does_not_cross_to(
    dialect: ModernUpstream, host: Peer | None
) -> None:
    # X-EXT-42.
    text = f'{{"jsonrpc":"2.0","method":"{ACTIVE}","params":{{}}}}'
    assert dialect.decode(text.encode(), host) is None


def test_news_of_a_task_are_of_the_task_they_name() -> None:
    assert heard("notifications/tasks", taskId="n1", status="working") == TaskNotification("n1")


@pytest.mark.parametrize(
    "method",
    ["notifications/cancelled", "notifications/elicitation/complete", "notifications/tasks", "notifications/other"],
)
def test_what_does_not_exist_on_this_wire_is_dropped(method: str) -> None:
    assert heard(method, requestId=1) is None


@pytest.mark.parametrize(
    "message",
    [b"{", b"[]", b'{"jsonrpc":"2.0","id":1,"method":"ping"}', b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}'],
)
def test_a_message_that_no_server_may_send_breaks_the_protocol(message: bytes) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        DIALECT.decode(message, HOST)
    assert failed.value.reason == "malformed"


# --- what is read elsewhere


@pytest.mark.parametrize("id", ["", '"id": null,'])
def test_an_error_that_names_no_request_is_read_as_the_response_to_one(id: str) -> None:
    error = '{"code":-32602,"message":"\\u00e9","data": [1e400]}'
    found = DIALECT.read_unaddressed_error(7, f'{{"jsonrpc":"2.0",{id}"error":{error}}}'.encode())
    assert found is not None
    assert found.error is not None
    assert (found.id, found.text[found.error.start : found.error.end]) == (7, error)


@pytest.mark.parametrize(
    "message",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"jsonrpc":"2.0","id":null,"result":{}}',
        b'{"jsonrpc":"2.0","result":{},"error":{"code":1,"message":""}}',
        b'{"jsonrpc":"2.0","id":1.5,"error":{"code":1,"message":""}}',
        b'{"jsonrpc":"2.0","error":{"code":1,"message":""},"error":{"code":2,"message":""}}',
    ],
)
def test_what_is_no_error_or_names_a_request_is_no_refusal_of_another(message: bytes) -> None:
    assert DIALECT.read_unaddressed_error(7, message) is None


def test_an_error_that_is_none_refuses_nothing() -> None:
    with pytest.raises(UpstreamFailed, match="is not JSON-RPC"):
        DIALECT.read_unaddressed_error(7, b'{"jsonrpc":"2.0","error":{"code":"1"}}')


def test_a_discovery_is_read() -> None:
    server = DIALECT.read_discovery(response({"supportedVersions": ["2026-07-28"], "capabilities": {}}))
    assert server is not None
    assert server.peer.revision is Revision.R2026_07_28


def test_a_catalogue_is_read() -> None:
    assert set(DIALECT.read_tools(response({"tools": [{"name": "a"}]})).page.tools) == {"a"}


def test_a_round_is_read_and_answered() -> None:
    asked = {"resultType": "input_required", "inputRequests": {"a": {"method": "roots/list"}}}
    found = DIALECT.round_of("tools/call", 1, response(asked))
    assert found is not None
    question = found.questions["a"]
    assert DIALECT.input_responses({"a": (question, '{"result":{"roots":[]}}')}) == '{"a":{"roots":[]}}'
    assert DIALECT.input_responses({"a": (question, DIALECT.default_answer(question))}) is None


def test_an_answer_to_a_method_of_an_extension_may_be_of_a_kind_that_it_has() -> None:
    # X-EXT-22.
    thing = Extension(methods=frozenset({"thing/do"}), result_types=frozenset({"partial"}))
    dialect = ModernUpstream("0.1.0", ExtensionPolicy(allowed={"com.example/thing": thing}))
    partial = response({"resultType": "partial"})
    assert dialect.round_of("thing/do", 1, partial) is None
    for other, method in ((DIALECT, "thing/do"), (dialect, "tools/list")):
        with pytest.raises(UpstreamFailed):
            other.round_of(method, 1, partial)


def test_a_task_is_read_and_what_came_of_it() -> None:
    task = {"taskId": "n1", "status": "working"}
    assert DIALECT.read_created_task("tools/call", response({"resultType": "task", **task})) == ServerTask(
        "n1", TaskStatus.WORKING
    )
    found = DIALECT.read_task(7, "n1", response({**task, "status": "completed", "result": {"content": []}}))
    assert found is not None
    assert found.response is not None
    assert found.response.id == 7


def test_a_server_serves_tasks_where_its_discovery_says_so() -> None:
    said = {"supportedVersions": ["2026-07-28"], "capabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    found, other = (
        DIALECT.read_discovery(response(said)),
        DIALECT.read_discovery(response({**said, "capabilities": {}})),
    )
    assert found is not None
    assert other is not None
    assert (DIALECT.server_declares_tasks(found), DIALECT.server_declares_tasks(other)) == (True, False)


def test_a_host_is_asked_what_it_declared() -> None:
    assert DIALECT.can_ask(HOST, Question("roots/list", None))
    assert not DIALECT.can_ask(None, Question("roots/list", None))


def test_an_outcome_is_read() -> None:
    assert DIALECT.outcome(response({"content": []})) == CallSucceeded(result='{"content": []}', tool_error=False)


# --- what the gateway answers by itself


def test_a_call_without_an_answer_to_its_server_ends_as_an_error() -> None:
    found = DIALECT.unanswered_error(3)
    check(found.text, "JSONRPCErrorResponse")
    assert (found.id, found.error.value["code"]) == (3, -32603)  # type: ignore[union-attr]
    assert found.error.value["data"] == {"origin": "gateway", "reason": "unanswered", "dispatched": True}  # type: ignore[union-attr]


def test_a_request_that_is_refused_has_the_code_and_the_text() -> None:
    found = DIALECT.error(3, -32601, "no")
    check(found.text, "JSONRPCErrorResponse")
    assert (found.id, found.error.value) == (3, {"code": -32601, "message": "no"})  # type: ignore[union-attr]


def test_a_request_that_is_served_has_an_empty_answer() -> None:
    found = DIALECT.empty_result(3)
    assert read(found.text) == {"jsonrpc": "2.0", "id": 3, "result": {}}


@covers("H-MOD-5")
def test_a_page_loses_its_unsound_tools_and_nothing_else() -> None:
    tools = [{"name": "a"}, {"name": "odd", "inputSchema": {"x-mcp-header": "Root"}}]
    shown = DIALECT.without_unsound_tools(response({"tools": tools, "ttlMs": 3}))
    assert json.loads(shown.text) == {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "a"}], "ttlMs": 3}}
    assert shown.result is not None
    assert shown.result.value["tools"] == [{"name": "a"}]


def test_a_page_that_is_sound_stays_the_very_same() -> None:
    page = response({"tools": [{"name": "a"}]})
    assert DIALECT.without_unsound_tools(page) is page


# --- descriptions and tools -------------------------------------------------------------------------------------------


INFO = "io.modelcontextprotocol/serverInfo"
SERVERS = ModernUpstream("1", ExtensionPolicy())
DISCOVERED = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}


def answer_of(result: Any = None, error: Any = None) -> Response:
    said = {"result": result} if error is None else {"error": error}
    return response_of(json.dumps({"jsonrpc": "2.0", "id": 1, **said}))


def response_of(text: str) -> Response:
    found = parse(text.encode(), max_depth=64)
    assert isinstance(found, Response)
    return found


def test_a_discovery_tells_who_the_server_is() -> None:
    said = {**DISCOVERED, "instructions": "Do", "_meta": {INFO: {"name": "s"}}}
    server = SERVERS.read_discovery(answer_of(said))
    assert server is not None
    assert server.peer.revision is Revision.R2026_07_28
    assert (server.peer.capabilities, server.peer.info) == ({"tools": {}}, {"name": "s"})
    assert (server.capabilities, server.instructions) == ('{"tools": {}}', '"Do"')


@pytest.mark.parametrize("more", [{}, {"_meta": []}, {"_meta": {}}, {"_meta": {INFO: 3}}, {"instructions": 3}])
def test_a_server_need_not_say_who_it_is(more: dict[str, Any]) -> None:
    server = SERVERS.read_discovery(answer_of({**DISCOVERED, **more}))
    assert server is not None
    assert (server.peer.info, server.instructions) == ({}, None)


@covers("V-META-7")
def test_a_discovery_without_a_type_is_complete() -> None:
    said = {name: value for name, value in DISCOVERED.items() if name != "resultType"}
    assert SERVERS.read_discovery(answer_of(said)) is not None


@covers("V-ERA-7")
@pytest.mark.parametrize("versions", [[], ["2025-11-25"], ["2031-01-01", 3, None]])
def test_a_server_of_no_revision_that_we_know_is_none_of_this_era(versions: list[Any]) -> None:
    assert SERVERS.read_discovery(answer_of({**DISCOVERED, "supportedVersions": versions})) is None


@pytest.mark.parametrize("code", [-32022, -32601, -32602, -32600, -32603, -32000, 7])
def test_a_server_that_does_not_refuse_as_one_of_this_era_may_be_none(code: int) -> None:
    assert SERVERS.read_discovery(answer_of(error={"code": code, "message": "no"})) is None


@pytest.mark.parametrize("code", [-32020, -32021])
def test_a_server_that_refuses_as_one_of_this_era_is_one(code: int) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        SERVERS.read_discovery(answer_of(error={"code": code, "message": "no"}))
    assert (failed.value.reason, failed.value.dispatched) == ("refused", False)


@pytest.mark.parametrize(
    "result",
    [
        {**DISCOVERED, "supportedVersions": "2026-07-28"},
        {**DISCOVERED, "capabilities": []},
        {"supportedVersions": ["2026-07-28"]},
        {**DISCOVERED, "resultType": "input_required"},
        [],
    ],
)
def test_a_discovery_that_cannot_be_read_breaks_the_protocol(result: Any) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        SERVERS.read_discovery(answer_of(result))
    assert failed.value.reason == "malformed"


def test_capabilities_that_repeat_a_key_break_the_protocol() -> None:
    text = '{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"tools":{}}}'
    with pytest.raises(UpstreamFailed, match="repeats a key"):
        SERVERS.read_discovery(response_of(f'{{"jsonrpc":"2.0","id":1,"result":{text}}}'))


def test_a_discovery_that_is_too_long_breaks_the_protocol() -> None:
    with pytest.raises(UpstreamFailed, match="too long"):
        SERVERS.read_discovery(answer_of({**DISCOVERED, "instructions": "x" * MAX_WELCOME}))


# --- the catalogue


def tool(name: Any, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def test_a_page_has_the_tools_and_where_the_next_begins() -> None:
    found = SERVERS.read_tools(answer_of({"tools": [tool("a"), tool("b")], "nextCursor": "süd"}))
    assert (set(found.page.tools), found.page.cursor, found.refused) == ({"a", "b"}, '"s\\u00fcd"', ())
    assert found.page.tools["a"].support is None


@pytest.mark.parametrize("cursor", [{}, {"nextCursor": None}, {"nextCursor": 3}])
def test_the_last_page_has_no_next(cursor: dict[str, Any]) -> None:
    assert SERVERS.read_tools(answer_of({"tools": [], **cursor})).page.cursor is None


@covers("H-MOD-5")
def test_a_tool_tells_what_headers_repeat() -> None:
    found = SERVERS.read_tools(answer_of({"tools": [tool("a", region={"type": "string", "x-mcp-header": "Region"})]}))
    assert found.page.tools["a"].header_paths == {"Region": ("region",)}


def test_a_tool_tells_what_its_server_hints() -> None:
    found = SERVERS.read_tools(answer_of({"tools": [tool("a") | {"annotations": {"idempotentHint": False}}]}))
    assert found.page.tools["a"].hints == {"idempotentHint": False}


@covers("H-MOD-5")
def test_a_tool_whose_annotations_are_not_sound_is_left_out_and_named() -> None:
    odd = tool("odd", n={"type": "number", "x-mcp-header": "N"})
    found = SERVERS.read_tools(answer_of({"tools": [odd, tool("a")]}))
    assert (set(found.page.tools), found.refused) == ({"a"}, ("odd",))


@pytest.mark.parametrize("odd", [3, None, {}, {"name": 3}])
def test_what_is_no_tool_is_passed_over(odd: Any) -> None:
    found = SERVERS.read_tools(answer_of({"tools": [odd, tool("a")]}))
    assert (set(found.page.tools), found.refused) == ({"a"}, ())


def test_a_server_that_refuses_to_list_its_tools_fails() -> None:
    with pytest.raises(UpstreamFailed) as failed:
        SERVERS.read_tools(answer_of(error={"code": -32601, "message": "no"}))
    assert failed.value.reason == "refused"


@pytest.mark.parametrize("result", [{}, {"tools": {}}, [], {"tools": [], "resultType": "task"}])
def test_a_list_that_cannot_be_read_breaks_the_protocol(result: Any) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        SERVERS.read_tools(answer_of(result))
    assert failed.value.reason == "malformed"


# --- as hosts may see it


def page_of(text: str) -> str | None:
    """The page as hosts see it; None if it is the server's own."""
    whole = response_of(f'{{"jsonrpc":"2.0","id":1,"result":{text}}}')
    sound = SERVERS.without_unsound_tools(whole)
    assert sound.result is not None
    return None if sound is whole else sound.text[sound.result.start : sound.result.end]


ODD = '{"name":"odd","inputSchema":{"properties":{"n":{"type":"number","x-mcp-header":"N"}}}}'
SOUND = '{ "name":"a", "inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"R"}}}, "x":1e999 }'


@covers("H-MOD-5")
def test_hosts_do_not_see_a_tool_whose_annotations_are_not_sound_and_the_rest_to_the_byte() -> None:
    page = f'{{"ttlMs":1, "tools":[{ODD}, {SOUND}],"nextCursor":"c"}}'
    assert page_of(page) == f'{{"ttlMs":1, "tools":[{SOUND}],"nextCursor":"c"}}'


@pytest.mark.parametrize(
    "page",
    [
        f'{{"tools":[{SOUND}]}}',
        '{"tools":[3,{},{"name":4,"inputSchema":{"x-mcp-header":"R"}}]}',
        '{"tools":{}}',
        "{}",
        "[]",
        "null",
    ],
)
def test_a_page_of_which_nothing_is_left_out_is_as_it_was(page: str) -> None:
    assert page_of(page) is None


def test_an_error_is_no_page() -> None:
    answer = answer_of(error={"code": 1, "message": "no"})
    assert SERVERS.without_unsound_tools(answer) is answer


def test_a_result_is_a_round_where_it_asks_for_input() -> None:
    assert DIALECT.round_of("tools/call", 1, response({"resultType": "complete", "content": []})) is None
    asks = {"resultType": "input_required", "inputRequests": {}, "requestState": "s"}
    assert DIALECT.round_of("tools/call", 1, response(asks)) is not None
