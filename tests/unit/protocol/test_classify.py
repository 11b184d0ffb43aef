"""The era of a message is found, and what a modern request must declare is checked in order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import covers
from taskgate.errors import (
    DownstreamError,
    HeaderMismatch,
)
from taskgate.protocol.classify import (
    MAX_CACHED_META,
    classify,
)
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.headers import RequestHeaders
from taskgate.protocol.host_requests import RequestMeta
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Message
from unit.protocol.modern_messages import (
    CAPABILITIES,
    CLIENT,
    LEGACY_TASKS,
    LEVEL,
    MODERN,
    TASKS,
    VERSION,
    asked,
    classified,
    message,
    meta,
    routed,
    said,
)

# --- eras -------------------------------------------------------------------------------------------------------------


RESPONSES = [
    parse(f'{{"jsonrpc":"2.0","id":1,{outcome}}}'.encode(), max_depth=9)
    for outcome in (f'"result":{{"_meta":{{"{VERSION}":"{MODERN}"}}}}', '"error":{"code":1,"message":""}')
]


@pytest.mark.parametrize(
    ("body", "revision"),
    [
        (message("initialize"), MODERN),
        (message("tools/list"), None),
        (message("tools/call", {"name": "n"}), "2025-11-25"),
        (message("notifications/cancelled", id=...), "2025-06-18"),
        (RESPONSES[1], None),
        (message("notifications/cancelled", id=...), MODERN),
        (message("notifications/cancelled", {"_meta": meta()}, id=...), None),
    ],
)
def test_only_a_request_of_the_modern_era_has_its_headers_read(body: Message, revision: str | None) -> None:
    def read() -> RequestHeaders:
        raise AssertionError("the headers were read")

    assert not isinstance(
        classify(body, revision, read, offers_tasks=True, strict_names=True, extensions=ExtensionPolicy()), RequestMeta
    )


@covers("H-MOD-4")
@pytest.mark.parametrize("revision", [None, "2025-11-25", MODERN])
def test_a_version_sent_twice_is_refused_whichever_of_the_two_was_looked_at(revision: str | None) -> None:
    # AMB-10.
    twice = RequestHeaders(version=MODERN, method="tools/list", duplicate="MCP-Protocol-Version")
    with pytest.raises(HeaderMismatch, match=r"^MCP-Protocol-Version was sent more than once$"):
        classify(
            asked("tools/list"),
            revision,
            lambda: twice,
            offers_tasks=True,
            strict_names=False,
            extensions=ExtensionPolicy(),
        )


versions = st.sampled_from([..., None, 3, MODERN, "2025-11-25", "2031-01-01"])
headers = st.sampled_from([None, MODERN, "2025-11-25", "2024-11-05", "2031-01-01", ""])
methods = st.sampled_from(["initialize", "ping", "tools/list", "tools/call", "tasks/get", "server/discover"])


@given(method=methods, in_body=versions, in_header=headers, capabilities=st.sampled_from([..., None, 3, {}, TASKS]))
def test_no_request_passes_in_one_era_that_means_the_other(
    method: str, in_body: Any, in_header: str | None, capabilities: Any
) -> None:
    body = message(method, {"name": "n", "taskId": "n", "_meta": meta(capabilities, in_body)})
    try:
        route = classified(body, said(method, in_header))
    except DownstreamError:
        # Whoever says nothing of the modern era is never refused in its name.
        assert in_body not in (..., None) or in_header in (MODERN, "2031-01-01", "")
        return
    if isinstance(route, RequestMeta):
        assert in_body == in_header == MODERN
    else:
        assert route is None
        # A version that is null counts as none.
        assert in_body in (..., None)


# --- what a request declares ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, 10_000], ids=["small", "large"])
def test_of_what_a_host_says_it_is_its_name_and_version_are_kept(size: int) -> None:
    info = {"name": "h", "version": "1" * 1000, "title": "t", "icons": ["x" * size]}
    assert routed("tools/list", **{CLIENT: info}).peer.info == {"name": "h", "version": "1" * 512}
    assert routed("tools/list", **{CLIENT: {"name": 1}}).peer.info == {}


def test_what_a_host_says_it_is_in_very_many_parts_is_not_read() -> None:
    assert routed("tools/list", **{CLIENT: {"name": "h", "parts": [0] * 100_000}}).peer.info == {}


# --- the cache --------------------------------------------------------------------------------------------------------


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
    alone = outcome(method, {**meta, "a/long": "x" * MAX_CACHED_META})
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


@pytest.mark.parametrize(("letters", "kept"), [(3000, True), (5000, False)])
def test_a_long_meta_is_read_anew_each_time(letters: int, kept: bool) -> None:
    one, other = [routed("tools/list", {"a": "x" * letters}) for _ in range(2)]
    assert one == other
    assert (one.peer is other.peer) is kept
