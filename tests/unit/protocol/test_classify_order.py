"""A request of the modern era is refused for the first thing that is wrong, in the order of AMB-10."""

from typing import Any

import pytest

from requirements import covers
from taskgate.domain.versions import Era
from taskgate.errors import (
    DownstreamError,
    HeaderMismatch,
    IncompleteMeta,
    InvalidParams,
    MissingCapability,
    UnknownMethod,
    UnsupportedVersion,
)
from taskgate.protocol.envelope import Message
from taskgate.protocol.extensions import Extension, ExtensionPolicy
from taskgate.protocol.headers import RequestHeaders, read_headers
from taskgate.protocol.modern_requests import RequestMeta
from taskgate.protocol.vocabulary import MODERN_METHODS
from unit.protocol.modern_messages import (
    CAPABILITIES,
    CLIENT,
    LEGACY_TASKS,
    LEVEL,
    TASKS,
    VERSION,
    asked,
    classified,
    message,
    routed,
    said,
)


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
