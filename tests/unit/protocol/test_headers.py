"""A request of the modern era says the same in its headers as in its body, or it is refused."""

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taskgate.errors import HeaderMismatch
from taskgate.protocol.envelope import Request
from taskgate.protocol.headers import (
    RequestHeaders,
    check_headers,
    check_single,
    encode_value,
    read_headers,
)
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.vocabulary import MODERN_METHODS

VERSION = "2026-07-28"
TASK = "7Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c"


def request(method: str, **params: Any) -> Request:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    message = parse(json.dumps(body).encode(), max_depth=64)
    assert isinstance(message, Request)
    return message


def said(method: str | None, name: str | None = None, version: str | None = VERSION, **params: str) -> RequestHeaders:
    return RequestHeaders(version=version, method=method, name=name, params=params)


def refusal(headers: RequestHeaders, message: Request, *, strict_names: bool = False) -> str:
    with pytest.raises(HeaderMismatch) as refused:
        check_headers(headers, message, VERSION, strict_names=strict_names)
    assert refused.value.contradicts is ("does not equal" in str(refused.value))
    return str(refused.value)


# --- reading ---------------------------------------------------------------------------------------------------------


def test_headers_are_read_whatever_the_case_of_their_names() -> None:
    fields = [
        ("Host", "gate"),
        ("mcp-protocol-version", VERSION),
        ("MCP-METHOD", "tools/call"),
        ("Mcp-nAme", "Render"),
        ("MCP-PARAM-Region", "EU"),
        ("Mcp-Parameter", "x"),
        ("Mcp-Session-Id", "s"),
    ]
    assert read_headers(fields) == RequestHeaders(
        version=VERSION, method="tools/call", name="Render", params={"region": "EU"}
    )


def test_a_request_without_any_of_them_says_nothing() -> None:
    assert read_headers([("Host", "gate"), ("Accept", "*/*"), ("accept", "*/*")]) == RequestHeaders()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("MCP-Protocol-Version", "MCP-Protocol-Version"),
        ("Mcp-Method", "Mcp-Method"),
        ("Mcp-Name", "Mcp-Name"),
        ("Mcp-Param-Region", "Mcp-Param-*"),
    ],
)
@pytest.mark.parametrize("again", ["a", "b"], ids=["the same", "another"])
def test_a_header_that_is_sent_twice_is_refused_even_with_the_same_value(name: str, told: str, again: str) -> None:
    # H-MOD-4.
    headers = read_headers([(name, "a"), (name.upper(), again)])
    assert headers.doubled == told
    with pytest.raises(HeaderMismatch, match=rf"^{re.escape(told)} was sent more than once$"):
        check_single(headers)


def test_the_first_header_that_is_sent_twice_is_told() -> None:
    fields = [("Mcp-Name", "a"), ("Mcp-Name", "a"), ("Mcp-Method", "b"), ("Mcp-Method", "b")]
    assert read_headers(fields).doubled == "Mcp-Name"


def test_other_headers_may_be_sent_twice() -> None:
    assert read_headers([("Max-Forwards", "1"), ("max-forwards", "2"), ("Mcp-Name", "a")]) == RequestHeaders(name="a")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "Mcp-Method",
                    "MCP-Protocol-Version",
                    "mcp-name",
                    "Mcp-Param-A",
                    "Mcp-Param-B",
                    "Max-Forwards",
                    "X",
                    "",
                ]
            ),
            st.booleans(),
            st.text("ab", max_size=2),
        )
    )
)
def test_any_headers_are_read_as_one_after_the_other_says(sent: list[tuple[str, bool, str]]) -> None:
    headers = read_headers([(name.upper() if loud else name, value) for name, loud, value in sent])
    last = {name.lower(): value for name, _, value in sent}
    assert (headers.version, headers.method, headers.name) == (
        last.get("mcp-protocol-version"),
        last.get("mcp-method"),
        last.get("mcp-name"),
    )
    assert headers.params == {name[10:]: value for name, value in last.items() if name.startswith("mcp-param-")}
    theirs = [name for name, _, _ in sent if name not in ("Max-Forwards", "X", "")]
    assert (headers.doubled is None) == (len(theirs) == len(set(theirs)))


def test_headers_that_are_sent_once_are_none_too_many() -> None:
    check_single(read_headers([("Mcp-Name", "a"), ("Mcp-Method", "a"), ("Mcp-Param-A", "a"), ("Mcp-Param-B", "a")]))


# --- headers against the body ----------------------------------------------------------------------------------------

NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
TASK_METHODS = [method for method, member in NAMED.items() if member == "taskId"]
OTHERS = [method for method, member in NAMED.items() if member != "taskId"]


@pytest.mark.parametrize(("method", "member"), NAMED.items())
def test_a_request_that_says_the_same_twice_passes(method: str, member: str) -> None:
    # H-MOD-1, H-MOD-2.
    check_headers(said(method, "a b"), request(method, **{member: "a b"}), VERSION, strict_names=True)
    check_headers(said(method, "=?base64?w6k=?="), request(method, **{member: "é"}), VERSION, strict_names=True)


@pytest.mark.parametrize("name", [None, "anything", "\n"])
def test_a_name_counts_only_where_the_method_has_one(name: str | None) -> None:
    check_headers(
        said("tools/list", name), request("tools/list", name="x", uri="y", taskId="z"), VERSION, strict_names=True
    )


@pytest.mark.parametrize("version", [None, "2025-11-25", "", "2026-07-28 "])
def test_another_version_or_none_in_the_headers_is_refused(version: str | None) -> None:
    # V-ERA-2.
    told = refusal(said("tools/list", version=version), request("tools/list"))
    assert told == f"MCP-Protocol-Version {'is missing' if version is None else 'does not equal the version in _meta'}"


@pytest.mark.parametrize("version", ["é", "a\n", "\udce9"])
def test_a_version_that_no_header_could_hold_is_none(version: str) -> None:
    with pytest.raises(HeaderMismatch, match="MCP-Protocol-Version does not equal"):
        check_headers(said("tools/list", version=version), request("tools/list"), version, strict_names=False)


@pytest.mark.parametrize("method", sorted(MODERN_METHODS))
def test_every_method_is_its_own_header(method: str) -> None:
    assert encode_value(method) == method


@pytest.mark.parametrize("method", [None, "tools/call", "Tools/List", "=?base64?dG9vbHMvbGlzdA==?="])
def test_another_method_or_none_in_the_headers_is_refused(method: str | None) -> None:
    # Only names and parameters are ever encoded.
    told = refusal(said(method), request("tools/list"))
    assert told == f"Mcp-Method {'is missing' if method is None else 'does not equal the method'}"


@pytest.mark.parametrize(("method", "member"), NAMED.items())
@pytest.mark.parametrize("params", [{}, {"name": "B", "uri": "B", "taskId": "B"}, {"name": 1, "uri": 1, "taskId": 1}])
def test_another_name_in_the_headers_is_refused(method: str, member: str, params: dict[str, Any]) -> None:
    assert refusal(said(method, "b"), request(method, **params)) == f"Mcp-Name does not equal params.{member}"


@pytest.mark.parametrize("method", NAMED)
def test_a_name_that_is_encoded_badly_is_refused(method: str) -> None:
    sent = "=?base64?SGVsbG8?="
    message = request(method, name=sent, uri=sent, taskId=sent)
    assert refusal(said(method, sent), message) == "Mcp-Name is malformed"


@pytest.mark.parametrize("method", OTHERS)
@pytest.mark.parametrize("params", [{}, {"name": "b", "uri": "b"}])
def test_a_name_that_is_missing_is_refused(method: str, params: dict[str, Any]) -> None:
    assert refusal(said(method), request(method, **params)) == "Mcp-Name is missing"


@pytest.mark.parametrize("method", TASK_METHODS)
def test_a_task_need_not_be_named_in_the_headers_unless_that_is_asked_for(method: str) -> None:
    # AMB-8.
    message = request(method, taskId=TASK)
    check_headers(said(method), message, VERSION, strict_names=False)
    assert refusal(said(method), message, strict_names=True) == "Mcp-Name is missing"


def test_no_value_of_a_header_comes_back() -> None:
    for headers in (said("secret"), said("tools/call", "secret"), said("tools/call", "é-secret"), said(None, "secret")):
        assert "secret" not in refusal(headers, request("tools/call", name="a"))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(body=texts, header=texts)
@example(body="a", header="a")
@example(body="=?base64?YQ==?=", header="a")
@example(body="a", header="=?base64?YQ==?=")
def test_a_request_passes_only_if_its_header_stands_for_its_body(body: str, header: str) -> None:
    message = request("tools/call", name=body)
    check_headers(said("tools/call", encode_value(body)), message, VERSION, strict_names=True)
    if header != body:
        refusal(said("tools/call", encode_value(header)), message)
