"""What a request of the modern era says about itself is read once, and each time anew."""

from typing import Any

import pytest

from requirements import covers
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import (
    IncompleteMeta,
    InvalidParams,
)
from taskgate.protocol.classify import declares_tasks
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
    meta,
    routed,
    said,
)


@pytest.mark.parametrize("method", sorted(MODERN_METHODS))
def test_a_request_of_the_modern_era_is_known_by_what_it_says_itself(method: str) -> None:
    capabilities = {"elicitation": {}, **TASKS}
    more = {CLIENT: {"name": "h", "version": "1"}, LEVEL: "warning", "progressToken": "t", "traceparent": "00-1"}
    assert classified(asked(method, capabilities, **more), said(method)) == RequestMeta(
        peer=Peer(revision=Revision.R2026_07_28, capabilities=capabilities, info={"name": "h", "version": "1"}),
        log_level="warning",
        progress_token="t",
        declares_tasks=True,
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
    assert route.repeated == {"region": "south"}
    assert routed("tools/call").repeated == {}


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
