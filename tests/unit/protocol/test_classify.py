"""Every message has one era, found by V-ERA-1 alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import covers
from taskgate.domain.versions import LEGACY, Revision
from taskgate.errors import (
    DownstreamError,
    HeaderMismatch,
    IncompleteMeta,
    MalformedMessage,
    UnsupportedVersion,
    VerbNotServed,
)
from taskgate.protocol.classify import Dropped, InitializeMessage, InSession, check_verb, classify
from taskgate.protocol.envelope import Message
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.headers import RequestHeaders
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.modern_requests import RequestMeta
from unit.protocol.modern_messages import (
    CAPABILITIES,
    MODERN,
    TASKS,
    VERSION,
    asked,
    classified,
    message,
    meta,
    said,
)

RESPONSES = [
    parse(f'{{"jsonrpc":"2.0","id":1,{outcome}}}'.encode(), max_depth=9)
    for outcome in (f'"result":{{"_meta":{{"{VERSION}":"{MODERN}"}}}}', '"error":{"code":1,"message":""}')
]


@covers("V-ERA-1")
@pytest.mark.parametrize("version", [None, *LEGACY, MODERN, "2031-01-01", ""])
@pytest.mark.parametrize("params", [None, {"protocolVersion": MODERN}, {"_meta": {}}, {"_meta": {CAPABILITIES: TASKS}}])
def test_initialize_opens_the_handshake_whatever_the_headers_say(version: str | None, params: Any) -> None:
    # Part (a).
    assert classified(message("initialize", params), said("tools/list", version)) == InitializeMessage()


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
    headers = RequestHeaders(version=version, method="other", name="=?base64?!?=", doubled="Mcp-Name")
    assert classified(body, headers) == InSession(None if version is None else Revision(version))


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
    twice = RequestHeaders(version=MODERN, method="tools/list", doubled="MCP-Protocol-Version")
    with pytest.raises(HeaderMismatch, match="more than once"):
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
    assert classified(message("notifications/cancelled", params, id=...), said("other", header)) == Dropped()


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


@covers("V-ERA-4")
def test_a_get_or_delete_that_names_the_modern_era_is_told_what_that_has() -> None:
    with pytest.raises(VerbNotServed) as refused:
        check_verb(MODERN)
    assert refused.value.served == ("POST",)


@pytest.mark.parametrize("version", [None, *LEGACY, "2031-01-01", ""])
def test_any_other_get_or_delete_is_for_the_legacy_era_to_judge(version: str | None) -> None:
    check_verb(version)


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
        assert in_body is ...
        assert isinstance(route, InitializeMessage) == (method == "initialize")
