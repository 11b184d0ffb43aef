"""Messages of modern hosts are decoded, and notifications for them encoded."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.json_texts import objects, scalars, texts, written
from requirements import covers
from taskgate.domain.versions import Era, Peer, Revision
from taskgate.errors import DownstreamError, UnknownMethod
from taskgate.protocol.classify import declares_tasks
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.headers import NAME_PARAMS, RequestHeaders, encode_value
from taskgate.protocol.host_requests import (
    CallTool,
    ModernIntent,
    Relay,
    RequestMeta,
    Retry,
)
from taskgate.protocol.jsonrpc import parse, usual_progress
from taskgate.protocol.messages import Notification, Params, Request, Response, meta_of, value_of
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.vocabulary import MODERN_METHODS
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


def test_usual_progress_is_relayed_as_any_notification_is() -> None:
    text = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1,"total":3}}'
    usual, parsed = usual_progress(text.encode()), parse(text.encode(), max_depth=9)
    assert usual is not None
    assert isinstance(parsed, Notification)
    assert DIALECT.relayed_progress(usual, b'"t"').decode() == DIALECT.notification(parsed, token="t")
