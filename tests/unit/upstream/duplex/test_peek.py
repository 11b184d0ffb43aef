"""Whose a message on a line is: read from its two ends, and never otherwise than the walk over all of it tells."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Notification, Request, Response
from taskgate.protocol.server_messages import sent_id
from taskgate.upstream.duplex.peek import (
    NotificationPeek,
    ProgressPeek,
    RequestPeek,
    ResponsePeek,
    Shown,
    declared_in,
    kind_of,
    response_in,
    subscription_of,
    task_in,
    task_shown_in,
    uri_in,
)

KINDS: dict[bytes, Any] = {
    b'{"jsonrpc":"2.0","id":5,"result":{}}': ResponsePeek(5),
    b'{"jsonrpc": "2.0", "id": 5, "result": {}}': ResponsePeek(5),
    b'{"id":5,"jsonrpc":"2.0","result":{}}': ResponsePeek(5),
    b'{"result":{"id":7},"jsonrpc":"2.0","id":5}': ResponsePeek(5),
    b'{"result": {"id": 7}, "jsonrpc": "2.0", "id": 5}': ResponsePeek(5),
    b'{"result":{},"id":"five","jsonrpc":"2.0"}': ResponsePeek("five"),
    b'{"jsonrpc":"2.0","result":{"a":{"id":9}},"id":5}': ResponsePeek(5),
    b'{"jsonrpc":"2.0","result":{},"id":5,"more":{"id":6}}': ResponsePeek(5),
    b'{"jsonrpc":"2.0","result":{"a":",\\"id\\":9}"},"id":5} \n': ResponsePeek(5),
    b'{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":"no"}}': ResponsePeek(5),
    b'{ "result" : {} , "id" : 5 , "jsonrpc" : "2.0" }': ResponsePeek(5),
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1}}': ProgressPeek(5),
    b'{"method":"notifications/progress","params":{"progressToken":"t","progress":1},"jsonrpc":"2.0"}': ProgressPeek(
        "t"
    ),
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":5}}': ProgressPeek(5),
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}': NotificationPeek("notifications/progress"),
    b'{"jsonrpc":"2.0","id":0,"method":"ping"}': RequestPeek(0, "ping"),
    b'{"method":"ping","jsonrpc":"2.0","id":0}': RequestPeek(0, "ping"),
    b'{"method":"roots/list","params":{"id":3},"id":"r","jsonrpc":"2.0"}': RequestPeek("r", "roots/list"),
    b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}': NotificationPeek(
        "notifications/message"
    ),
    b'{"method":"notifications/initialized","jsonrpc":"2.0"}': NotificationPeek("notifications/initialized"),
}


@pytest.mark.parametrize(("message", "kind"), KINDS.items(), ids=range(len(KINDS)))
def test_a_message_is_told_by_its_ends(message: bytes, kind: Any) -> None:
    assert kind_of(message) == kind


@pytest.mark.parametrize(
    "junk",
    [b"", b"hello", b"{", b"{}", b"[]", b'{"a":1}', b"\xff\xfe", b'{"result":{}}', b'{"jsonrpc":"2.0","method":7}',
     b'[{"jsonrpc":"2.0","id":1,"result":{}}]', b'{"result":{},"id":5',
     b'{"jsonrpc":"2.0","result":{},"an\\"id":5}', b'{"result":{},"jsonrpc":"2.0","an, \\"id":5}'],
    ids=range(13),
)  # fmt: skip
def test_what_is_no_message_is_none(junk: bytes) -> None:
    assert kind_of(junk) is None


@pytest.mark.parametrize(
    "broken",
    [
        b'{"jsonrpc":"2.0","id":5,"result":{"text":"\xff"}}',
        b'{"jsonrpc":"2.0","id":5,"result":{',
        b'{"result":{"text":"\xff"},"jsonrpc":"2.0","id":5}',
        b'{"jsonrpc":"2.0","id":5}',
        b'{"id":5,"answer":42}',
    ],
)
def test_a_broken_answer_is_still_that_requests(broken: bytes) -> None:
    assert kind_of(broken) == ResponsePeek(5)


_IDS = st.integers(-(2**53), 2**53) | st.text(max_size=80)
_TEXTS = st.text(max_size=40) | st.sampled_from(
    [',"id":7}', '"id":7,"jsonrpc":"2.0"}', "\\", '"', '{"result":', ', "id": 7']
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS | st.just("id"), inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(_TEXTS | st.sampled_from(["id", "jsonrpc", "progressToken"]), _VALUES, max_size=4)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Any message, its members in any order, written in any usual way."""
    kind = draw(st.sampled_from(["result", "error", "request", "note", "progress"]))
    members: dict[str, Any] = {"jsonrpc": "2.0"}
    if kind in {"result", "error", "request"}:
        members["id"] = draw(_IDS)
    if kind == "result":
        members["result"] = draw(_OBJECTS)
    elif kind == "error":
        members["error"] = {"code": 1, "message": draw(_TEXTS), "data": draw(_VALUES)}
    else:
        name = {"request": "roots/list", "note": "notifications/message", "progress": "notifications/progress"}[kind]
        members |= {"method": name, "params": draw(_OBJECTS)}
    for name in draw(st.lists(st.sampled_from(["more", "meta"]), max_size=2)):
        members[name] = draw(_VALUES)
    order = draw(st.permutations(list(members)))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]))
    ascii_ = draw(st.booleans())
    return json.dumps({key: members[key] for key in order}, separators=separators, ensure_ascii=ascii_).encode(
        errors="surrogatepass" if ascii_ else "replace"
    )


@given(messages())
def test_whatever_is_read_from_the_ends_the_whole_message_says_too(message: bytes) -> None:
    kind = kind_of(message)
    try:
        read = parse(message, max_depth=256)
    except Exception:
        return
    match kind:
        case ResponsePeek(id_):
            assert isinstance(read, Response)
            # Digits as a text are the number that the gateway sent.
            assert sent_id(read.id) == id_
        case RequestPeek(id_, method):
            assert isinstance(read, Request)
            assert (read.id, read.method) == (id_, method)
        case ProgressPeek(token):
            assert isinstance(read, Notification)
            assert read.params["progressToken"].value == token
        case NotificationPeek(method):
            assert isinstance(read, Notification)
            assert read.method == method
        case None:
            raise AssertionError("every message is one")


def test_a_stream_is_named_by_what_a_notification_says_of_it() -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}}
    assert subscription_of(json.dumps(note).encode()) is None
    note["params"] = {"_meta": {"io.modelcontextprotocol/subscriptionId": 8}}
    assert subscription_of(json.dumps(note).encode()) == 8
    note["params"] = {"_meta": {"io.modelcontextprotocol/subscriptionId": [8]}}
    assert subscription_of(json.dumps(note).encode()) is None
    assert subscription_of(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}') == 8
    assert subscription_of(b'{"jsonrpc":"2.0","id":1,"result":{}}') is None
    assert subscription_of(b"no") is None


def test_what_a_message_is_about_is_read_from_its_parameters() -> None:
    assert uri_in(b'{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:b"}}') == "a:b"
    assert uri_in(b'{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":7}}') is None
    assert uri_in(b"no") is None
    assert task_in(b'{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"t"}}') == "t"
    related = b'{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"_meta":{"%s":{"taskId":"t"}}}}'
    assert task_in(related % b"io.modelcontextprotocol/related-task") == "t"
    assert task_in(related % b"another") is None
    for odd in (b"[1]", b"{}", b"7", b"null"):
        named = related % b"io.modelcontextprotocol/related-task"
        assert task_in(named.replace(b'"taskId":"t"', b'"taskId":' + odd)) is None
    assert response_in(b'{"jsonrpc":"2.0","id":1,"method":"ping"}') is None
    assert declared_in(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"a": 1}}') == b'{"a": 1}'


TASKS: dict[bytes, Shown | None] = {
    b'{"task":{"taskId":"t","status":"working","pollInterval":5000}}': Shown("t", "working", 5.0),
    b'{"taskId":"t","status":"completed","pollIntervalMs":250}': Shown("t", "completed", 0.25),
    b'{"taskId":"t","status":"working","pollInterval":true}': Shown("t", "working", 0.0),
    b'{"taskId":"t","status":"working","pollInterval":1e300}': Shown("t", "working", 0.0),
    b'{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}': Shown("t", None, 0.0),
    b'{"content":[],"structuredContent":{"taskId":7,"status":"working"}}': None,
    b'{"taskId":7,"status":"working","_meta":{"io.modelcontextprotocol/related-task":{"taskId":8}}}': None,
}


@pytest.mark.parametrize(("result", "shown"), TASKS.items(), ids=range(len(TASKS)))
def test_a_task_is_known_by_how_it_shows_itself(result: bytes, shown: Shown | None) -> None:
    assert task_shown_in(b'{"jsonrpc":"2.0","id":1,"result":%b}' % result) == shown


def test_no_answer_shows_no_task() -> None:
    assert task_shown_in(b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"taskId"}}') is None
    assert task_shown_in(b"no") is None
