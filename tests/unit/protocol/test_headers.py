"""Headers that repeat the body are read, encoded, and compared with it."""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from requirements import covers
from taskgate.errors import HeaderMismatch, MalformedMessage
from taskgate.protocol.headers import (
    RequestHeaders,
    check_headers,
    check_params,
    decode_value,
    encode_value,
    read_header_paths,
    read_headers,
)
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Request

# --- reading and comparing --------------------------------------------------------------------------------------------


VERSION = "2026-07-28"


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
    assert (headers.duplicate is None) == (len(theirs) == len(set(theirs)))


# --- headers against the body ----------------------------------------------------------------------------------------


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


# --- arguments --------------------------------------------------------------------------------------------------------


MIRRORED = {"Region": ("region",), "Depth": ("limits", "depth")}


def call(**params: Any) -> Request:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a", **params}}
    message = parse(json.dumps(body).encode(), max_depth=64)
    assert isinstance(message, Request)
    return message


def check(arguments: Any, **params: str) -> None:
    check_params(params, call(arguments=arguments), MIRRORED)


def refused_argument(arguments: Any, **params: str) -> str:
    with pytest.raises(HeaderMismatch) as refused:
        check(arguments, **params)
    assert refused.value.contradicts is ("does not equal" in str(refused.value))
    return str(refused.value)


@pytest.mark.parametrize("size", [4096, 40_000])
def test_a_long_argument_is_compared_to_its_last_letter(size: int) -> None:
    # A text of this size is not kept whole where nobody needs it.
    long = "x" * size
    check({"region": "eu", "file": long}, region="eu")
    check({"region": long, "file": long}, region=long)
    refused_argument({"region": long + "y", "file": long}, region=long[:4096])
    refused_argument({"region": "x" * 40_001}, region=long)


@given(
    value=st.one_of(texts, st.integers(-(2**53) + 1, 2**53 - 1), st.booleans()), other=st.one_of(texts, st.integers())
)
def test_an_argument_passes_under_the_header_that_a_host_makes_of_it(value: str | int, other: str | int) -> None:
    check({"region": value}, region=encode_value(value))
    if encode_value(other) != encode_value(value):
        refused_argument({"region": value}, region=encode_value(other))


TWICE = {
    "twice": '{"region":"eu","region":"us"}',
    "twice, the other first": '{"region":"us","region":"eu"}',
    "escaped": '{"region":"eu","r\\u0065gion":"us"}',
    "folded": '{"region":"eu","Region":"us"}',
    "another that stands twice": '{"region":"eu","x":1,"x":2}',
    "within": '{"region":"eu","limits":{"depth":1,"depth":2}}',
    "folded within": '{"region":"eu","limits":{"depth":1,"DEPTH":2}}',
    "the way to it": '{"region":"eu","limits":{},"limits":{"depth":1}}',
    "large": '{"region":"eu","x":"' + "x" * 9000 + '","region":"us"}',
}


def written(arguments: str) -> Request:
    params = f'{{"name":"a","arguments":{arguments}}}'
    message = parse(f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode(), max_depth=64)
    assert isinstance(message, Request)
    return message


@pytest.mark.parametrize("arguments", TWICE.values(), ids=TWICE)
def test_an_argument_that_a_header_repeats_stands_in_the_body_once(arguments: str) -> None:
    with pytest.raises(MalformedMessage):
        check_params({"region": "eu", "depth": "1"}, written(arguments), MIRRORED)
    # Where no header repeats anything, they are the server's business.
    check_params({"region": "eu"}, written(arguments), {})


# --- values -----------------------------------------------------------------------------------------------------------


@given(st.text())
@example("=?base64??=")
@example("=?base64?=?=")
def test_what_was_encoded_is_read_again_and_safe_on_the_way(text: str) -> None:
    sent = encode_value(text)
    assert sent.isascii()
    assert sent.isprintable()
    assert sent == sent.strip()
    assert decode_value(sent) == text


@covers("T29")
@given(st.one_of(st.text(), st.text("ABQRZgw+/=\n é", max_size=12).map(lambda inner: f"=?base64?{inner}?=")))
def test_a_value_is_refused_or_means_itself_or_is_the_one_base64_of_what_it_means(sent: str) -> None:
    try:
        text = decode_value(sent)
    except ValueError:
        return
    assert sent.isascii()
    assert sent in (text, f"=?base64?{b64encode(text.encode()).decode()}?=")


# --- annotations of a tool --------------------------------------------------------------------------------------------


def named(name: object, kind: object = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name}


def within(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_a_deep_schema_is_read_like_any_other() -> None:
    schema = named("A")
    for _ in range(1500):
        schema = within(a=schema)
    (path,) = read_header_paths(schema).values()
    assert len(path) == 1500


def test_a_schema_with_very_many_arguments_is_read_in_a_time_that_grows_no_faster_than_it_does() -> None:
    looks = 0

    class Name(str):
        def lower(self) -> str:
            nonlocal looks
            looks += 1
            return super().lower()

    properties = {f"a{turn}": named(Name(f"A{turn}")) for turn in range(100)}
    assert len(read_header_paths(within(**properties))) == 100
    assert looks == 100


@pytest.mark.parametrize(
    "schema", [{}, within(a={"type": "string"}), within(), True, None, "x-mcp-header", ["x-mcp-header"]]
)
def test_a_tool_that_asks_for_no_header_has_none(schema: object) -> None:
    assert read_header_paths(schema) == {}
