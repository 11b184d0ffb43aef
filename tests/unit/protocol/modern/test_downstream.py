"""Messages of modern hosts are decoded, and notifications for them encoded."""

import json

from hypothesis import given
from hypothesis import strategies as st

from helpers.json_texts import objects, scalars, texts, written
from taskgate.domain.versions import Era
from taskgate.errors import DownstreamError
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.headers import NAME_PARAMS, RequestHeaders, encode_value
from taskgate.protocol.host_requests import (
    CallTool,
    Relay,
    RequestMeta,
    Retry,
)
from taskgate.protocol.jsonrpc import NULLABLE, parse, usual_progress
from taskgate.protocol.messages import Notification, Request, Response, value_of
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.vocabulary import MODERN_METHODS
from unit.protocol.modern_messages import MODERN, classified

# --- requests ---------------------------------------------------------------------------------------------------------


DIALECT = ModernDownstream("0.1.0")
META = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}'


def request(method: str, members: str = "", meta: str = META) -> str:
    return f'{{"jsonrpc":"2.0","id":"h","method":"{method}","params":{{{members}{"," if members else ""}{meta}}}}}'


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
    gone |= {key for key, value in written(sent) if key in NULLABLE and value is None}
    assert [pair for pair in passed if pair[0] != "_meta"] == [
        pair for pair in written(sent) if pair[0] not in gone | {"_meta"}
    ]
    meta = dict(dict(written(sent))["_meta"])
    if meta.get("progressToken", 0) is None:
        del meta["progressToken"]
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
