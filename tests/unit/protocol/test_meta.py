"""Edits of an object and its _meta change what they name and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.jsontext.spans import Member
from taskgate.protocol.messages import Params
from taskgate.protocol.meta import (
    HOP_KEYS,
    ObjectEdit,
    TraceKeys,
    edit_object,
    edits_for,
    with_trace_keys,
)

# --- edits ------------------------------------------------------------------------------------------------------------


Y = "io.modelcontextprotocol/related-task"
Z = "io.modelcontextprotocol/serverInfo"


HOP = {
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/serverInfo",
    "io.modelcontextprotocol/logLevel",
    "io.modelcontextprotocol/subscriptionId",
    "io.modelcontextprotocol/related-task",
    "io.modelcontextprotocol/model-immediate-response",
    "io.taskgate/idempotency-key",
    "io.taskgate/gateway",
}


def test_the_keys_that_concern_one_hop_are_named_one_by_one() -> None:
    # X-EXT-27.
    assert HOP == HOP_KEYS


names = st.sampled_from(["a", "b", "c", "_meta", f"{Y}"])
objects = st.dictionaries(names, st.one_of(st.integers(), st.dictionaries(names, st.integers())))


@given(objects, st.dictionaries(st.sampled_from("abcd"), st.integers()), st.sets(st.sampled_from("abcd")))
def test_what_comes_out_is_what_a_reader_would_make(value: dict[str, Any], put: dict[str, int], drop: set[str]) -> None:
    change = ObjectEdit(put={name: str(text) for name, text in put.items()}, drop=drop, meta_put={Z: "9"})
    meta = value.get("_meta")
    kept = {name: inner for name, inner in meta.items() if name != Y} if isinstance(meta, dict) else {}
    wanted = {name: inner for name, inner in value.items() if name not in drop} | put | {"_meta": {**kept, Z: 9}}
    assert json.loads(edit_object(json.dumps(value), change)) == wanted


# --- trace keys -------------------------------------------------------------------------------------------------------


OURS = TraceKeys("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
STATED = TraceKeys(OURS.traceparent, "vendor=a")


_VALUES = st.recursive(st.none() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3))
_META = st.dictionaries(
    st.sampled_from(["traceparent", "tracestate", "baggage", "x", "io.modelcontextprotocol/y"]), _VALUES
)
_PARAMS = st.dictionaries(st.sampled_from(["name", "arguments", "_meta ", "é"]), _VALUES)


@given(_PARAMS, st.none() | _META, st.none() | st.integers(), st.booleans(), st.sampled_from([OURS, STATED]))
def test_whatever_the_parameters_the_keys_are_there_once(
    params: dict[str, Any], meta: dict[str, Any] | None, token: int | None, ascii_only: bool, keys: TraceKeys
) -> None:
    given_ = params if meta is None else {"_meta": meta, **params}
    if token is None:
        sent = Params(json.dumps(given_, ensure_ascii=ascii_only))
    else:
        given_ = {**given_, "_meta": {**(meta or {}), "progressToken": "OPEN"}}
        sent = Params(*json.dumps(given_, ensure_ascii=ascii_only).split('"OPEN"'))
        given_["_meta"]["progressToken"] = token
    found = {"traceparent": keys.traceparent, "tracestate": keys.tracestate}
    put = {name: value for name, value in found.items() if value is not None}
    others = {k: v for k, v in given_.get("_meta", {}).items() if k not in ("traceparent", "tracestate", "baggage")}
    text = with_trace_keys(sent, keys).with_token(token or 0)
    assert json.loads(text) == {**given_, "_meta": {**others, **put}}
    assert text.count('"traceparent"') == 1


@pytest.mark.parametrize("put", [{}, {"x": "1"}], ids=["nothing put", "something put"])
@pytest.mark.parametrize("keeps_hop", [True, False])
def test_very_many_keys_that_go_take_a_time_that_grows_no_faster_than_they_do(
    put: dict[str, str], keeps_hop: bool
) -> None:
    looks = 0

    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal looks
            looks += 1
            return str.__eq__(self, other)

    names = [Name(f"a{turn}") for turn in range(100)]
    inner = {name: Member(1, 10 * turn, 10 * turn + 1, 10 * turn + 9, None) for turn, name in enumerate(names)}
    inner[Name("stays")] = Member(1, 1000, 1001, 1009, None)
    change = ObjectEdit(meta_put=put, meta_drop=frozenset(names), keeps_hop=keeps_hop)
    edits_for({"_meta": Member({}, 0, 0, 1010, inner)}, 0, change)
    assert looks < 1_000
