"""Messages to and from modern servers."""

import json
from typing import Any

import pytest

from requirements import covers
from taskgate.domain.versions import Era, Peer, Revision
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import MAX_WELCOME
from taskgate.protocol.extensions import Extension, ExtensionPolicy
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.modern import requests
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.protocol.server_messages import (
    RequestDraft,
    ServerSubscription,
    SessionNotification,
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


TASKS = {f"{META}tasks": {}}


def told_of(host: Peer | None, *, follows_tasks: bool = False, dialect: ModernUpstream = DIALECT) -> Any:
    found = asked_for(host, follows_tasks=follows_tasks, dialect=dialect)
    check(found, "CallToolRequest")
    return found["params"]["_meta"][f"{META}clientCapabilities"]


def asked_for(host: Peer | None, *, follows_tasks: bool = False, dialect: ModernUpstream = DIALECT) -> Any:
    """A call for a host, as a server gets it."""
    draft = RequestDraft(method="tools/call", params=Params('{"name":"t"}'), follows_tasks=follows_tasks)
    return read(dialect.request(1, draft, host).message)


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


# --- what is heard


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


# --- what is read elsewhere


def test_an_answer_to_a_method_of_an_extension_may_be_of_a_kind_that_it_has() -> None:
    # X-EXT-22.
    thing = Extension(methods=frozenset({"thing/do"}), result_types=frozenset({"partial"}))
    dialect = ModernUpstream("0.1.0", ExtensionPolicy(allowed={"com.example/thing": thing}))
    partial = response({"resultType": "partial"})
    assert dialect.round_of("thing/do", 1, partial) is None
    for other, method in ((DIALECT, "thing/do"), (dialect, "tools/list")):
        with pytest.raises(UpstreamFailed):
            other.round_of(method, 1, partial)


# --- what the gateway answers by itself


def test_a_page_that_is_sound_stays_the_very_same() -> None:
    page = response({"tools": [{"name": "a"}]})
    assert DIALECT.without_unsound_tools(page) is page


# --- descriptions and tools -------------------------------------------------------------------------------------------


SERVERS = ModernUpstream("1", ExtensionPolicy())
DISCOVERED = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}


def answer_of(result: Any = None, error: Any = None) -> Response:
    said = {"result": result} if error is None else {"error": error}
    return response_of(json.dumps({"jsonrpc": "2.0", "id": 1, **said}))


def response_of(text: str) -> Response:
    found = parse(text.encode(), max_depth=64)
    assert isinstance(found, Response)
    return found


def test_a_discovery_that_is_too_long_breaks_the_protocol() -> None:
    with pytest.raises(UpstreamFailed, match="too long"):
        SERVERS.read_discovery(answer_of({**DISCOVERED, "instructions": "x" * MAX_WELCOME}))


# --- as hosts may see it


def test_an_error_is_no_page() -> None:
    answer = answer_of(error={"code": 1, "message": "no"})
    assert SERVERS.without_unsound_tools(answer) is answer
