"""The era of a message is found, and what a modern request must declare is checked in order."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import covers
from taskgate.domain.versions import LEGACY, Client, Era, Peer, Revision
from taskgate.errors import (
    DownstreamError,
    HeaderMismatch,
    IncompleteMeta,
    InvalidParams,
    MalformedMessage,
    MissingCapability,
    UnknownMethod,
    UnsupportedVersion,
)
from taskgate.protocol.classify import (
    MAX_CACHED_META,
    IgnoredNotification,
    classify,
    declares_tasks,
    era_of_discovery,
    era_of_refusal,
)
from taskgate.protocol.extensions import Extension, ExtensionPolicy
from taskgate.protocol.headers import RequestHeaders, read_headers
from taskgate.protocol.host_requests import RequestMeta
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Message
from taskgate.protocol.vocabulary import MODERN_METHODS
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


@covers("V-ERA-1")
@pytest.mark.parametrize("version", [None, *LEGACY, MODERN, "2031-01-01", ""])
@pytest.mark.parametrize("params", [None, {"protocolVersion": MODERN}, {"_meta": {}}, {"_meta": {CAPABILITIES: TASKS}}])
def test_initialize_opens_the_handshake_whatever_the_headers_say(version: str | None, params: Any) -> None:
    # Part (a).
    assert classified(message("initialize", params), said("tools/list", version)) is None


@covers("V-ERA-1", "V-ERA-3")
@pytest.mark.parametrize("version", [None, *LEGACY])
@pytest.mark.parametrize(
    "body",
    [
        message("tools/list"),
        message("tools/list", {"_meta": {"progressToken": 1, CAPABILITIES: TASKS}}),
        message("tools/list", {"_meta": MODERN}),
        message("tools/list", [MODERN]),
        message("server/discover", {}),
        message("notifications/initialized", id=...),
        parse(
            b'{"jsonrpc":"2.0","id":1,"result":{"_meta":{"%s":"%s"}}}' % (VERSION.encode(), MODERN.encode()),
            max_depth=9,
        ),
        parse(b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}', max_depth=9),
    ],
    ids=lambda body: getattr(body, "text", None),
)
def test_a_message_that_names_no_version_of_its_own_belongs_to_a_session(body: Message, version: str | None) -> None:
    # Part (c). What else stands in the headers is nothing to that era.
    headers = RequestHeaders(version=version, method="other", name="=?base64?!?=", duplicate="Mcp-Name")
    assert classified(body, headers) is None


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


@covers("V-ERA-1", "T-9")
@pytest.mark.parametrize("version", [MODERN, "2031-01-01", "", "2025-11-25 "])
@pytest.mark.parametrize("params", [None, {}, {"_meta": {}}, {"_meta": None}, {"_meta": 3}, []])
def test_a_request_is_of_the_modern_era_where_its_header_names_no_version_of_the_other(
    version: str, params: Any
) -> None:
    # Part (b): it is refused there, and never taken for one that belongs to a session.
    with pytest.raises(IncompleteMeta):
        classified(message("tools/list", params), said("tools/list", version))


@covers("V-ERA-2")
@pytest.mark.parametrize("method", ["tools/list", "initialize", "ping"])
@pytest.mark.parametrize("version", [None, *LEGACY])
def test_a_request_is_of_the_modern_era_where_its_body_names_a_version(method: str, version: str | None) -> None:
    with pytest.raises(HeaderMismatch, match="MCP-Protocol-Version"):
        classified(asked(method), said(method, version))


@pytest.mark.parametrize("version", [None, 3, {}, True])
def test_a_version_of_the_wrong_type_is_one_of_the_modern_era_too(version: Any) -> None:
    with pytest.raises(IncompleteMeta):
        classified(asked("initialize", version=version), RequestHeaders())


@covers("H-MOD-12")
@pytest.mark.parametrize(
    ("header", "params"),
    [(MODERN, None), (MODERN, {"_meta": meta()}), (None, {"_meta": meta()}), ("2025-11-25", {"_meta": meta()})],
)
def test_a_notification_of_the_modern_era_is_dropped(header: str | None, params: Any) -> None:
    # No rule says what its headers must be.
    assert (
        classified(message("notifications/cancelled", params, id=...), said("other", header)) == IgnoredNotification()
    )


@pytest.mark.parametrize(
    ("header", "version", "told"),
    [
        ("2031-01-01", ..., "2031-01-01"),
        ("", ..., ""),
        ("\udce9", ..., ""),
        ("1" * 64, ..., "1" * 64),
        ("1" * 65, ..., ""),
        (None, "2031-01-01", ""),
        (None, 3, ""),
    ],
)
def test_a_notification_of_no_version_that_is_served_is_refused(header: str | None, version: Any, told: str) -> None:
    with pytest.raises(UnsupportedVersion) as refused:
        classified(message("notifications/x", {"_meta": meta(version=version)}, id=...), said(version=header))
    assert refused.value.requested == told


@covers("H-MOD-8")
@pytest.mark.parametrize("version", [MODERN, "2031-01-01"])
@pytest.mark.parametrize("body", RESPONSES)
def test_nobody_in_the_modern_era_waits_for_a_response(body: Message, version: str) -> None:
    # The id is none of a request, so nothing is told under it.
    with pytest.raises(MalformedMessage, match=r"none has anything to answer$") as refused:
        classified(body, said(version=version))
    assert refused.value.id is None


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
        assert in_body is not ... or in_header in (MODERN, "2031-01-01", "")
        return
    if isinstance(route, RequestMeta):
        assert in_body == in_header == MODERN
    else:
        assert route is None
        assert in_body is ...


# --- the order of refusals --------------------------------------------------------------------------------------------


@covers("V-DISC-2")
@pytest.mark.parametrize("version", ["2031-01-01", "2025-11-25", "", "x" * 64])
def test_a_version_that_is_not_of_the_modern_era_is_not_served_in_it(version: str) -> None:
    # AMB-11: one of the other era comes by its handshake.
    with pytest.raises(UnsupportedVersion) as refused:
        classified(asked("tools/list", version=version), said("tools/list", version))
    assert refused.value.requested == version


def test_a_version_that_can_be_none_is_not_told_back() -> None:
    with pytest.raises(UnsupportedVersion) as refused:
        classified(asked("tools/list", version="x" * 65), said("tools/list", "x" * 65))
    assert refused.value.requested == ""


GONE = [
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "tasks/result",
    "tasks/list",
]


@covers("V-DISC-3", "M-NEG-6", "T-6")
@pytest.mark.parametrize("method", [*GONE, "tools/Call", "elicitation/create", "notifications/cancelled", ""])
@pytest.mark.parametrize("capabilities", [{}, TASKS, LEGACY_TASKS], ids=repr)
def test_a_method_that_the_era_does_not_have_is_unknown_whatever_is_declared(
    method: str, capabilities: dict[str, Any]
) -> None:
    with pytest.raises(UnknownMethod):
        routed(method, capabilities)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize("capabilities", [{}, TASKS, LEGACY_TASKS], ids=repr)
def test_where_no_call_becomes_a_task_their_methods_are_unknown(method: str, capabilities: dict[str, Any]) -> None:
    with pytest.raises(UnknownMethod):
        classified(asked(method, capabilities), said(method), offers_tasks=False)


@pytest.mark.parametrize("offers_tasks", [True, False])
@pytest.mark.parametrize("capabilities", [{}, TASKS])
def test_a_method_of_a_carried_extension_is_known_whatever_is_declared(
    capabilities: dict[str, Any], offers_tasks: bool
) -> None:
    # X-EXT-20.
    found = classified(asked("skills/get", capabilities), said("skills/get"), offers_tasks=offers_tasks)
    assert isinstance(found, RequestMeta)


@pytest.mark.parametrize("method", ["skills/get", "skills/other", "events/list", "thing/do"])
def test_a_method_of_an_extension_that_does_not_cross_is_unknown(method: str) -> None:
    of_old = Extension(methods=frozenset({"thing/do"}), eras=frozenset({Era.LEGACY}))
    extensions = ExtensionPolicy(allowed={"com.example/thing": of_old}, others=True)
    with pytest.raises(UnknownMethod):
        classified(asked(method), said(method), extensions=extensions)


@pytest.mark.parametrize("name", [None, "n", "other"])
def test_a_name_in_the_header_of_a_method_of_an_extension_means_nothing(name: str | None) -> None:
    # X-EXT-29.
    headers = RequestHeaders(version="2026-07-28", method="skills/get", name=name)
    assert isinstance(classified(asked("skills/get", name="n"), headers, strict_names=True), RequestMeta)


def test_where_no_call_becomes_a_task_all_else_is_as_ever() -> None:
    for method in MODERN_METHODS - {"tasks/get", "tasks/update", "tasks/cancel"}:
        assert classified(asked(method), said(method), offers_tasks=False) == classified(asked(method), said(method))


@covers("M-NEG-4")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize("capabilities", [{}, {"extensions": {}}, {"tasks": None}, {"tasks": True}], ids=repr)
def test_tasks_are_for_hosts_that_declare_them(method: str, capabilities: dict[str, Any]) -> None:
    with pytest.raises(MissingCapability) as refused:
        routed(method, capabilities)
    assert refused.value.required == TASKS


@covers("M-NEG-7")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel"])
def test_tasks_of_the_other_era_may_be_looked_at_and_cancelled_by_who_declares_those(method: str) -> None:
    # AMB-19.
    assert routed(method, LEGACY_TASKS).declares_tasks is False
    with pytest.raises(MissingCapability):
        routed("tasks/update", LEGACY_TASKS)


@covers("M-NOTIF-1")
@pytest.mark.parametrize("ids", [[], ["a"], None, 3])
def test_news_of_tasks_are_for_hosts_that_declare_them(ids: Any) -> None:
    params = {"notifications": {"toolsListChanged": True, "taskIds": ids}}
    for capabilities in ({}, LEGACY_TASKS):
        with pytest.raises(MissingCapability) as refused:
            routed("subscriptions/listen", capabilities, params=params)
        assert refused.value.required == TASKS
    assert routed("subscriptions/listen", TASKS, params=params).declares_tasks


@pytest.mark.parametrize("wanted", [{}, {"toolsListChanged": True}, None, "taskIds", ["taskIds"]])
def test_other_news_are_for_any_host(wanted: Any) -> None:
    assert not routed("subscriptions/listen", params={"notifications": wanted}).declares_tasks
    assert not routed("subscriptions/listen", params={"taskIds": ["a"]}).declares_tasks


@pytest.mark.parametrize("method", ["tools/call", "tools/list", "prompts/get", "server/discover"])
def test_all_else_needs_no_tasks(method: str) -> None:
    assert not routed(method, {}, params={"task": {}, "notifications": {"taskIds": []}}).declares_tasks


def test_a_task_need_be_named_in_the_headers_only_where_that_is_asked_for() -> None:
    # AMB-8.
    body, headers = asked("tasks/get", TASKS), said("tasks/get")._replace(name=None)
    assert isinstance(classified(body, headers), RequestMeta)
    with pytest.raises(HeaderMismatch, match="Mcp-Name"):
        classified(body, headers, strict_names=True)


def test_a_request_is_refused_for_the_first_thing_that_is_wrong() -> None:
    # AMB-10. Everything is wrong with the first; each next one has one thing put right.
    wrong = {CLIENT: 3, LEVEL: 3, "progressToken": None}
    fields = [("MCP-Protocol-Version", "2031-01-01"), ("Mcp-Method", "x"), ("Mcp-Method", "x")]
    twice, once = read_headers(fields), read_headers(fields[:2])
    steps: list[tuple[type[DownstreamError], str, Message, RequestHeaders]] = [
        (HeaderMismatch, "more than once", asked("x", 3, version="2031-01-02", **wrong), twice),
        (IncompleteMeta, "clientCapabilities", asked("x", 3, version="2031-01-02", **wrong), once),
        (HeaderMismatch, "MCP-Protocol-Version", asked("x", version="2031-01-02", **wrong), once),
        (HeaderMismatch, "Mcp-Method", asked("y", version="2031-01-01", **wrong), once),
        (UnsupportedVersion, "not supported", asked("x", version="2031-01-01", **wrong), once),
        (UnknownMethod, "does not exist", asked("x", **wrong), said("x")),
        (MissingCapability, "does not declare", asked("tasks/get", **wrong), said("tasks/get")),
        (InvalidParams, "clientInfo", asked("tasks/get", TASKS, **wrong), said("tasks/get")),
    ]
    for kind, text, body, headers in steps:
        with pytest.raises(kind, match=text):
            classified(body, headers)


def test_no_text_of_a_refusal_holds_what_the_host_sent() -> None:
    for body, headers in (
        (asked("secret"), said("secret")),
        (asked("tools/list", version="secret"), said("tools/list", "secret")),
        (asked("tools/call", **{LEVEL: "secret"}), said("tools/call")),
        (message("secret"), said("tools/list", "secret")),
    ):
        with pytest.raises(DownstreamError) as refused:
            classified(body, headers)
        assert "secret" not in str(refused.value)


LEVELS = "debug, info, notice, warning, error, critical, alert, emergency"


@pytest.mark.parametrize(
    ("body", "headers", "text"),
    [
        (message("tools/list"), said("tools/list"), f"_meta must have {VERSION}, a string"),
        (asked("tools/list", 3), said("tools/list"), f"_meta must have {CAPABILITIES}, an object"),
        (asked("x", version="1"), said("x", "1"), "The protocol version is not supported"),
        (asked("ping"), said("ping"), "The method does not exist in this protocol version"),
        (asked("tools/list", **{CLIENT: 3}), said("tools/list"), f"{CLIENT} must be an object"),
        (asked("tools/list", **{LEVEL: 3}), said("tools/list"), f"{LEVEL} must be one of {LEVELS}"),
        (
            asked("tools/list", progressToken=[]),
            said("tools/list"),
            "The progress token must be a string or an integer",
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_refusal_tells_what_is_wrong(body: Message, headers: RequestHeaders, text: str) -> None:
    with pytest.raises(DownstreamError) as refused:
        classified(body, headers)
    assert str(refused.value) == text


# --- what a request declares ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", sorted(MODERN_METHODS))
def test_a_request_of_the_modern_era_is_known_by_what_it_says_itself(method: str) -> None:
    capabilities = {"elicitation": {}, **TASKS}
    more = {CLIENT: {"name": "h", "version": "1"}, LEVEL: "warning", "progressToken": "t", "traceparent": "00-1"}
    assert classified(asked(method, capabilities, **more), said(method)) == RequestMeta(
        peer=Peer(revision=Revision.R2026_07_28, capabilities=capabilities, info={"name": "h", "version": "1"}),
        log_level="warning",
        progress_token="t",
        declares_tasks=True,
        client=Client("h", "1"),
    )


@covers("V-META-1", "V-META-2")
@pytest.mark.parametrize("more", [{}, {CLIENT: None, LEVEL: None}], ids=["absent", "null"])
def test_a_request_need_say_no_more_than_its_version_and_capabilities(more: dict[str, Any]) -> None:
    peer = Peer(revision=Revision.R2026_07_28, capabilities={}, info={})
    expected = RequestMeta(peer=peer, log_level=None, progress_token=None, declares_tasks=False)
    assert routed("tools/list", **more) == expected


@pytest.mark.parametrize("size", [10, 10_000], ids=["small", "large"])
def test_of_what_a_host_says_it_is_its_name_and_version_are_kept(size: int) -> None:
    info = {"name": "h", "version": "1" * 1000, "title": "t", "icons": ["x" * size]}
    assert routed("tools/list", **{CLIENT: info}).peer.info == {"name": "h", "version": "1" * 512}
    assert routed("tools/list", **{CLIENT: {"name": 1}}).peer.info == {}


def test_what_a_host_says_it_is_in_very_many_parts_is_not_read() -> None:
    assert routed("tools/list", **{CLIENT: {"name": "h", "parts": [0] * 100_000}}).peer.info == {}


@covers("H-MOD-6")
def test_a_request_may_repeat_arguments_in_its_headers() -> None:
    headers = said("tools/call")._replace(params={"region": "south"})
    route = classified(asked("tools/call"), headers)
    assert isinstance(route, RequestMeta)
    assert route.header_params == {"region": "south"}
    assert routed("tools/call").header_params == {}


@covers("V-META-1")
@pytest.mark.parametrize("missing", [VERSION, CAPABILITIES])
@pytest.mark.parametrize("value", [..., None, 3, True, [], ["2026-07-28"]], ids=repr)
def test_a_request_without_its_version_or_capabilities_is_refused(missing: str, value: Any) -> None:
    claimed = {name: each for name, each in {**meta(), missing: value}.items() if each is not ...}
    body = message("tools/list", {"_meta": claimed})
    with pytest.raises(IncompleteMeta, match=missing):
        classified(body, said("tools/list"))


@covers("M-NEG-1", "M-NEG-7")
@pytest.mark.parametrize(
    ("capabilities", "declared"),
    [
        (TASKS, True),
        ({"extensions": {"io.modelcontextprotocol/tasks": {"anything": 1}}}, True),
        ({}, False),
        ({"extensions": {}}, False),
        ({"extensions": None}, False),
        ({"extensions": []}, False),
        ({"extensions": ["io.modelcontextprotocol/tasks"]}, False),
        ({"extensions": {"io.modelcontextprotocol/tasks": None}}, False),
        ({"extensions": {"io.modelcontextprotocol/tasks": True}}, False),
        ({"extensions": {"io.modelcontextprotocol/tasks": []}}, False),
        ({"extensions": {"io.modelcontextprotocol/Tasks": {}}}, False),
        ({"experimental": {"io.modelcontextprotocol/tasks": {}}}, False),
        ({"io.modelcontextprotocol/tasks": {}}, False),
        (LEGACY_TASKS, False),
    ],
    ids=repr,
)
def test_tasks_are_declared_by_the_extension_alone(capabilities: dict[str, Any], declared: bool) -> None:
    assert declares_tasks(capabilities) is declared
    assert routed("tools/call", capabilities).declares_tasks is declared


@covers("V-META-4", "M-NEG-2", "T-8")
def test_what_one_request_declares_is_nothing_to_the_next() -> None:
    assert [routed("tools/call", each).declares_tasks for each in (TASKS, {}, TASKS)] == [True, False, True]


@pytest.mark.parametrize("level", ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"])
def test_the_levels_of_a_log_are_those_of_the_specification(level: str) -> None:
    assert routed("tools/call", **{LEVEL: level}).log_level == level


@pytest.mark.parametrize("token", ["", "t", 0, -7, 2**63 - 1])
def test_a_progress_token_is_a_string_or_an_integer(token: Any) -> None:
    read = routed("tools/call", progressToken=token).progress_token
    assert (type(read), read) == (type(token), token)


@pytest.mark.parametrize(
    "wrong",
    [
        *({CLIENT: value} for value in ("h", 3, [], True, "")),
        *({LEVEL: value} for value in ("trace", "INFO", "", 3, [], {}, ["info"], False)),
        *({"progressToken": value} for value in (None, 1.5, True, [], {}, 2**63, "x" * 257)),
    ],
    ids=repr,
)
def test_what_a_request_says_in_the_wrong_type_is_a_bad_parameter(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams):
        routed("tools/call", **wrong)


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


# --- the era of a server ----------------------------------------------------------------------------------------------


BOTH = ["2025-11-25", "2026-07-28"]
UNSUPPORTED = {"code": -32022, "message": "no", "data": {"supported": BOTH, "requested": "2025-11-25"}}


def discovered(**result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


def refused(code: Any, **error: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "no", **error}}).encode()


@pytest.mark.parametrize(
    "message",
    [
        discovered(supportedVersions=["2026-07-28"]),
        discovered(supportedVersions=BOTH, resultType="complete"),
        discovered(supportedVersions=[7, None, "2099-01-01", "2026-07-28"]),
        refused(-32020),
        refused(-32021, data={"requiredCapabilities": {}}),
        refused(-32022, data={"supported": ["2026-07-28"], "requested": "x"}),
        b'{"error":{"code":-32020}}',
    ],
)
@covers("V-ERA-5")
def test_a_revision_or_an_error_of_the_modern_era_tells_of_it(message: bytes) -> None:
    assert era_of_discovery(message) is Era.MODERN


@pytest.mark.parametrize(
    "message",
    [
        discovered(),
        discovered(supportedVersions=["2025-11-25"]),
        discovered(supportedVersions=["2099-01-01"]),
        discovered(supportedVersions="2026-07-28"),
        discovered(supportedVersions={"2026-07-28": {}}),
        b'{"jsonrpc":"2.0","id":1,"result":["2026-07-28"]}',
        *(refused(code) for code in (-32000, -32001, -32002, -32600, -32601, -32602, -32603, -32700, -32023, -32042)),
        refused("-32020"),
        refused(-32022),
        refused(-32022, data="2026-07-28"),
        refused(-32022, data={"supported": ["2025-11-25"]}),
        refused(-32022, data={"supported": "2026-07-28"}),
        b'{"jsonrpc":"2.0","id":1,"error":"-32020"}',
        b"",
        b"<html>",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"{" + b'"a":{' * 70 + b"}" * 71,
    ],
)
@covers("V-ERA-5", "V-ERA-9")
def test_anything_else_that_answers_tells_of_the_other_era(message: bytes) -> None:
    assert era_of_discovery(message) is Era.LEGACY


@covers("V-ERA-7")
def test_a_handshake_that_is_refused_for_another_revision_that_we_speak_tells_of_its_era() -> None:
    assert era_of_refusal(UNSUPPORTED) is Era.MODERN
