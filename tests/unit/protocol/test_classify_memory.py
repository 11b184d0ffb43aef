"""What a `_meta` says is read once for all requests that say the same; nothing else tells that it was read before."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.errors import DownstreamError
from taskgate.protocol import classify
from taskgate.protocol.modern_requests import RequestMeta
from unit.protocol.modern_messages import (
    CAPABILITIES,
    CLIENT,
    LEGACY_TASKS,
    LEVEL,
    TASKS,
    asked,
    classified,
    message,
    routed,
    said,
)

KEY = "io.taskgate/idempotency-key"

SAID = st.fixed_dictionaries(
    {"version": st.sampled_from(["2026-07-28", "2031-01-01", 1, None])},
    optional={
        CAPABILITIES: st.sampled_from([{}, TASKS, LEGACY_TASKS, {"elicitation": {"url": {}}}, [], None, ...]),
        CLIENT: st.sampled_from([None, {}, {"name": "h"}, "h"]),
        LEVEL: st.sampled_from([None, "error", "loud", {}]),
        "progressToken": st.sampled_from([7, "t", "}", None, 1.5]),
        KEY: st.sampled_from(["k", "}", 7, None, {"progressToken": 1}]),
        "a/b": st.sampled_from(["progressToken", 0, {"progressToken": 1}]),
    },
)


def outcome(method: str, meta: dict[str, Any]) -> Any:
    version = meta["version"] if isinstance(meta["version"], str) else "2026-07-28"
    try:
        return classified(asked(method, **meta), said(method, version))
    except DownstreamError as error:
        return type(error), str(error)


@given(method=st.sampled_from(["tools/call", "tasks/get", "tasks/update", "tasks/list"]), meta=SAID)
def test_a_request_is_told_the_same_whether_its_meta_was_read_before_or_not(method: str, meta: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classify, "_LONGEST_KEPT", -1)
        alone = outcome(method, meta)
    assert [outcome(method, meta), outcome(method, meta)] == [alone, alone]


TOKENS = st.integers(-(2**40), 2**40) | st.text(st.characters(exclude_categories=["Cs"]), max_size=9)


@given(tokens=st.lists(TOKENS, min_size=2, max_size=2))
def test_what_is_remembered_knows_no_progress_token(tokens: list[Any]) -> None:
    one, other = [routed("tools/call", TASKS, **{"progressToken": token, LEVEL: "error"}) for token in tokens]
    assert one.peer is other.peer
    assert [one.progress_token, other.progress_token] == tokens


@given(keys=st.lists(TOKENS, min_size=2, max_size=2), tokens=st.lists(st.none() | TOKENS, min_size=2, max_size=2))
def test_what_is_remembered_knows_no_idempotency_key(keys: list[Any], tokens: list[Any]) -> None:
    # With and without a token in front of it, or behind it.
    for first in (True, False):
        one, other = [
            routed("tools/call", TASKS, **dict(said if first else reversed(said)))
            for said in (
                [(KEY, key), ("progressToken", "t" if token is None else token)]
                for key, token in zip(keys, tokens, strict=True)
            )
        ]
        assert one.peer is other.peer
    bare, again = [routed("tools/call", TASKS, **{KEY: key}) for key in keys]
    assert bare.peer is again.peer


def test_requests_that_say_the_same_are_of_the_same_host() -> None:
    one, other = routed("tools/call", TASKS), routed("tools/list", TASKS)
    assert one.peer is other.peer
    assert routed("tools/list").peer is not one.peer


@pytest.mark.parametrize(("letters", "kept"), [(3000, True), (5000, False)])
def test_a_long_meta_is_read_anew_each_time(letters: int, kept: bool) -> None:
    one, other = [routed("tools/list", {"a": "x" * letters}) for _ in range(2)]
    assert one == other
    assert (one.peer is other.peer) is kept


@pytest.mark.parametrize("params", [None, {"_meta": 1}, {"_meta": {}}])
def test_without_a_meta_there_is_nothing_to_remember(params: Any) -> None:
    with pytest.raises(DownstreamError):
        classified(message("tools/list", params), said("tools/list"))


def test_a_host_that_was_refused_once_is_refused_again() -> None:
    for _ in range(2):
        assert not isinstance(outcome("tools/call", {"version": "2026-07-28", LEVEL: "loud"}), RequestMeta)
