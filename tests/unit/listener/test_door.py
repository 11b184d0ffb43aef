"""The checks of a request's head, without a socket: every rule by what passes it and what does not."""

from dataclasses import replace
from typing import Any

import pytest
from aiohttp import HttpVersion
from aiohttp.http import HttpVersion10, HttpVersion11
from multidict import CIMultiDict

from requirements import covers
from taskgate.listener import door
from taskgate.listener.door import Door, Rejection, RequestRejected
from taskgate.streams.exchange import Admission, HttpMethod

DOOR = Door(
    hosts=frozenset({"gate.example", "gate.example:443"}),
    origins=frozenset({"https://app.example"}),
    paths={"/mcp"},
    max_body=100,
)


def headers(*fields: tuple[str, str], **more: str) -> door.Fields:
    named = [*fields, *((name.replace("_", "-"), text) for name, text in more.items())]
    multidict = CIMultiDict(named)
    return {name: multidict.getall(name, []) for name in door.ADMISSION_FIELDS}


def post_headers(*fields: tuple[str, str], **more: str) -> door.Fields:
    return headers(*fields, **{"Host": "gate.example", "Content-Type": "application/json", **more})


def admit(
    method: str = "POST", target: str = "/mcp", version: HttpVersion = HttpVersion11, length: int = 0, **more: str
) -> Admission:
    return DOOR.admit(method, target, version, post_headers(**more), length)


def refusal_of(method: str = "POST", target: str = "/mcp", **more: Any) -> Rejection:
    with pytest.raises(RequestRejected) as refused:
        admit(method, target, **more)
    return refused.value.refusal


ACCEPTS: dict[str, tuple[bool, bool]] = {
    "": (True, True),
    ",": (True, True),
    "*/*": (True, True),
    "application/json, text/event-stream": (True, True),
    "text/event-stream, application/json": (True, True),
    "application/json": (True, False),
    "APPLICATION/JSON": (True, False),
    "text/event-stream": (False, True),
    "application/*": (True, False),
    "text/*": (False, True),
    "text/html": (False, False),
    "text/html, */*;q=0.1": (True, True),
    "*/*;q=0": (False, False),
    "*/*;q=0.000": (False, False),
    "*/*; Q = 0.0": (False, False),
    "*/*;q=0.001": (True, True),
    "application/json;q=0, */*": (False, True),
    "application/*;q=0, */*": (False, True),
    "application/json, application/*;q=0": (True, False),
    "application/json;charset=utf-8": (True, False),
    "application/json;q=0, application/json": (True, False),
    "application/jsonx": (False, False),
}


@pytest.mark.parametrize(("accept", "expected"), ACCEPTS.items(), ids=repr)
def test_the_most_specific_range_decides_what_is_acceptable(accept: str, expected: tuple[bool, bool]) -> None:
    assert door.read_accept(accept) == expected


@pytest.mark.parametrize(
    ("verb", "accept", "passes"),
    [
        (HttpMethod.POST, "application/json", True),
        (HttpMethod.POST, "text/event-stream", True),
        (HttpMethod.POST, "application/json, text/event-stream", True),
        (HttpMethod.POST, "text/event-stream, application/json", True),
        (HttpMethod.POST, "application/json,text/event-stream", True),
        (HttpMethod.POST, "*/*", True),
        (HttpMethod.POST, "text/html", False),
        (HttpMethod.GET, "application/json", False),
        (HttpMethod.GET, "text/event-stream", True),
        (HttpMethod.GET, "text/html", False),
        (HttpMethod.DELETE, "text/html", True),
    ],
)
def test_a_host_must_take_what_its_method_can_bring(verb: HttpMethod, accept: str, passes: bool) -> None:
    if passes:
        head = admit(verb, Accept=accept)
        assert (head.accepts_json, head.accepts_stream) == door.read_accept(accept)
    else:
        assert refusal_of(verb, Accept=accept) is door.NOT_ACCEPTABLE


MEDIA: dict[str, bool] = {
    "application/json": True,
    "Application/JSON": True,
    " application/json ; charset=utf-8": True,
    "application/json;charset=UTF-8": True,
    'application/json; charset="utf-8"': True,
    "application/json; profile=x": True,
    "application/json; charset=utf-8; charset=utf-16": False,
    "application/json; charset=utf-16": False,
    "application/json; charset=UTF-32LE": False,
    "application/json; charset=utf16": False,
    "application/json; charset=utf8": True,
    "application/json; charset=us-ascii": True,
    "application/json; charset=ISO-8859-1": True,
    "application/json; charset=": True,
    "application/json-rpc": False,
    "application/x-json": False,
    "text/json": False,
    "application/json, text/plain": False,
    "": False,
}


@pytest.mark.parametrize(("kind", "passes"), MEDIA.items(), ids=repr)
def test_a_body_says_that_it_is_json_and_not_in_utf_16_or_32(kind: str, passes: bool) -> None:
    if passes:
        assert admit(**{"Content-Type": kind}).method is HttpMethod.POST
    else:
        assert refusal_of(**{"Content-Type": kind}) is door.WRONG_MEDIA


@covers("T33")
@pytest.mark.parametrize(
    ("codings", "passes"),
    [
        (["identity"], True),
        (["IDENTITY"], True),
        (["gzip"], False),
        (["identity", "br"], False),
        (["identity, gzip"], False),
        ([""], False),
    ],
)
def test_a_body_comes_as_it_is(codings: list[str], passes: bool) -> None:
    fields = post_headers(*(("Content-Encoding", each) for each in codings))
    if passes:
        assert DOOR.admit("POST", "/mcp", HttpVersion11, fields).method is HttpMethod.POST
    else:
        with pytest.raises(RequestRejected) as refused:
            DOOR.admit("POST", "/mcp", HttpVersion11, fields)
        assert refused.value.refusal is door.WRONG_MEDIA


FRAMING: dict[str, tuple[dict[str, Any], Rejection | None]] = {
    "HTTP/1.0": ({"version": HttpVersion10}, None),
    "HTTP/1.2": ({"version": HttpVersion(1, 2)}, door.WRONG_HTTP),
    "HTTP/2": ({"version": HttpVersion(2, 0)}, door.WRONG_HTTP),
    "chunks": ({"Transfer_Encoding": "Chunked"}, None),
    "chunks in HTTP/1.0": ({"Transfer_Encoding": "chunked", "version": HttpVersion10}, door.BAD_REQUEST),
    "zipped chunks": ({"Transfer_Encoding": "gzip, chunked"}, door.NOT_IMPLEMENTED),
    "chunked chunks": ({"Transfer_Encoding": "chunked, chunked"}, door.NOT_IMPLEMENTED),
    "an offer of another protocol": ({"Upgrade": "websocket"}, None),
    "a tunnel": ({"method": "CONNECT"}, door.NOT_IMPLEMENTED),
    "a question first": ({"Expect": "100-Continue"}, None),
    "an expectation": ({"Expect": "200-ok"}, door.WRONG_EXPECTATION),
}


@pytest.mark.parametrize(("request_", "refusal"), FRAMING.values(), ids=FRAMING)
def test_only_plain_framing_passes(request_: dict[str, Any], refusal: Rejection | None) -> None:
    if refusal is None:
        assert admit(**request_).method is HttpMethod.POST
    else:
        assert refusal_of(**request_) is refusal


ORDER: dict[str, tuple[dict[str, Any], Rejection]] = {
    "framing": ({"Transfer_Encoding": "x"}, door.NOT_IMPLEMENTED),
    "Host": ({"Host": "evil.example"}, door.WRONG_HOST),
    "Origin": ({"Origin": "null"}, door.WRONG_ORIGIN),
    "path": ({"target": "/"}, door.UNKNOWN_PATH),
    "method": ({"method": "PUT"}, door.WRONG_METHOD),
    "media type": ({"Content-Type": "text/plain"}, door.WRONG_MEDIA),
    "Accept": ({"Accept": "text/html"}, door.NOT_ACCEPTABLE),
    "length": ({"length": 101}, door.BODY_TOO_LARGE),
}


@pytest.mark.parametrize("check", ORDER)
def test_checks_are_made_in_their_order(check: str) -> None:
    # Whatever is wrong further down, the first that fails decides.
    wrong: dict[str, Any] = {}
    for name in reversed(ORDER):
        fault, refusal = ORDER[name]
        wrong |= fault
        if name == check:
            assert refusal_of(**wrong) is refusal
            return


@pytest.mark.parametrize("name", ["Mcp-Session-Id", "MCP-Protocol-Version"])
def test_a_header_that_counts_has_one_value(name: str) -> None:
    with pytest.raises(RequestRejected) as refused:
        DOOR.admit("POST", "/mcp", HttpVersion11, post_headers((name, "a"), (name.upper(), "b")))
    assert refused.value.refusal is door.SENT_TWICE


def test_a_header_that_comes_again_with_the_same_value_counts_once() -> None:
    twice = [("Mcp-Session-Id", "a"), ("MCP-Protocol-Version", "2025-11-25"), ("Last-Event-ID", "1")] * 2
    admission = DOOR.admit("GET", "/mcp", HttpVersion11, post_headers(*twice))
    assert (admission.host_session, admission.revision, admission.last_event_id) == ("a", "2025-11-25", "1")


def test_an_empty_origin_is_none() -> None:
    assert admit(Origin="").method is HttpMethod.POST
    with pytest.raises(RequestRejected) as refused:
        DOOR.admit("POST", "/mcp", HttpVersion11, post_headers(("Origin", ""), ("Origin", "null")))
    assert refused.value.refusal is door.WRONG_ORIGIN


@pytest.mark.parametrize("others", [("2026-07-28",), ("2025-11-25",), ("x", "")], ids=str)
def test_a_version_of_the_modern_era_that_did_not_come_alone_is_left_to_that_era(others: tuple[str, ...]) -> None:
    # H-MOD-4: it has an error of its own for this, which needs the id of the request.
    versions = [("MCP-Protocol-Version", version) for version in (*others, "2026-07-28")]
    assert DOOR.admit("POST", "/mcp", HttpVersion11, post_headers(*versions)).revision == "2026-07-28"


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_in_the_modern_era_nothing_is_heard_of_sessions_and_events(method: str) -> None:
    # V-ERA-4: not even that there are two of them.
    ids = [("Mcp-Session-Id", "a"), ("mcp-session-id", "b"), ("Last-Event-ID", "a"), ("last-event-id", "b")]
    admission = DOOR.admit(method, "/mcp", HttpVersion11, post_headers(*ids, MCP_Protocol_Version="2026-07-28"))
    assert (admission.host_session, admission.last_event_id) == (None, None)


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ("!", "!"),
        ("~" * 256, "~" * 256),
        ("", "?"),
        ("~" * 257, "?"),
        ("a b", "?"),
        ("a\tb", "?"),
        ("a\x7f", "?"),
        ("\xe9", "?"),
        ("\udce9", "?"),
    ],
)
def test_a_session_id_that_cannot_be_one_is_unknown(sent: str, seen: str) -> None:
    assert admit(Mcp_Session_Id=sent).host_session == seen


def test_an_admission_says_what_the_head_said() -> None:
    fields = post_headers(MCP_Protocol_Version="2025-11-25", Accept="text/event-stream")
    admission = DOOR.admit("GET", "/mcp?a=/b", HttpVersion11, fields)
    assert admission == Admission(
        method=HttpMethod.GET,
        path="/mcp",
        host_session=None,
        revision="2025-11-25",
        accepts_json=False,
        accepts_stream=True,
        authorization=(),
        query="a=/b",
        last_event_id=None,
    )


def test_who_says_who_it_is_more_than_once_is_passed_on_as_it_came() -> None:
    # The door does not choose: whoever finds out who asks is to see all of it.
    fields = post_headers(("Authorization", "Bearer a"), ("authorization", "Bearer b"))
    assert DOOR.admit("POST", "/mcp", HttpVersion11, fields).authorization == ("Bearer a", "Bearer b")


@pytest.mark.parametrize(
    ("target", "query"), [("/mcp", ""), ("/mcp?", ""), ("/mcp?a=1&a=2", "a=1&a=2"), ("/mcp?a?b#c", "a?b#c")]
)
def test_a_query_is_what_follows_the_first_question_mark(target: str, query: str) -> None:
    assert admit(target=target).query == query


def test_whoever_asks_for_what_everybody_may_have_needs_no_more_than_the_right_host() -> None:
    DOOR.greet("GET", HttpVersion11, headers(Host="gate.example", Origin="https://evil.example", Accept="text/html"))
    with pytest.raises(RequestRejected) as refused:
        DOOR.greet("GET", HttpVersion11, headers(Host="evil.example"))
    assert refused.value.refusal is door.WRONG_HOST
    with pytest.raises(RequestRejected) as refused:
        DOOR.greet("GET", HttpVersion11, headers(Host="gate.example", Transfer_Encoding="x"))
    assert refused.value.refusal is door.NOT_IMPLEMENTED


@pytest.mark.parametrize("host", ["gate.example", "GATE.example", "Gate.Example:443"])
def test_the_case_of_a_host_does_not_count(host: str) -> None:
    assert admit(Host=host).path == "/mcp"


@pytest.mark.parametrize("host", ["", "gate.example.", "gate.example:80", "x.gate.example", "gate.example@evil"])
def test_a_host_that_is_not_listed_is_refused(host: str) -> None:
    assert refusal_of(Host=host) is door.WRONG_HOST


@pytest.mark.parametrize(
    ("target", "path"),
    [("/mcp", "/mcp"), ("/mcp?", "/mcp"), ("/mcp?a?b", "/mcp"), ("/%6d?x", "/%6d"), ("", ""), ("?x", "")],
)
def test_a_path_is_the_target_without_its_query(target: str, path: str) -> None:
    assert replace(DOOR, paths={path}).admit("POST", target, HttpVersion11, post_headers()).path == path


def test_a_length_that_is_just_allowed_passes() -> None:
    assert admit(length=100).method is HttpMethod.POST


def test_the_size_of_a_head_counts_all_its_fields() -> None:
    # The target, and "Host: gate.example\r\n".
    assert door.head_size("/mcp", ((b"Host", b"gate.example"),)) == 4 + 20


@pytest.mark.parametrize("refusal", [each for each in vars(door).values() if isinstance(each, Rejection)], ids=str)
def test_a_refusal_without_text_keeps_the_connection(refusal: Rejection) -> None:
    assert 400 <= refusal.status < 600
    assert refusal.text or not refusal.close
