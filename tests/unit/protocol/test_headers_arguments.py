"""A call of a tool says the same arguments in its headers as in its body, or it is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.errors import HeaderMismatch, MalformedMessage
from taskgate.protocol.envelope import Request
from taskgate.protocol.headers import RequestHeaders, check_params, encode_value
from taskgate.protocol.jsonrpc import parse

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
MIRRORED = {"Region": ("region",), "Depth": ("limits", "depth")}


def call(**params: Any) -> Request:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a", **params}}
    message = parse(json.dumps(body).encode(), max_depth=64)
    assert isinstance(message, Request)
    return message


def check(arguments: Any, **params: str) -> None:
    check_params(RequestHeaders(params=params), call(arguments=arguments), MIRRORED)


def refused_argument(arguments: Any, **params: str) -> str:
    with pytest.raises(HeaderMismatch) as refused:
        check(arguments, **params)
    assert refused.value.contradicts is ("does not equal" in str(refused.value))
    return str(refused.value)


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("eu", "eu"),
        ("é", "=?base64?w6k=?="),
        ("", ""),
        ("42.0", "42.0"),
        (True, "true"),
        (False, "false"),
        (42, "42"),
        (42, "42.0"),
        (42, "=?base64?NDI=?="),
        (42.0, "42"),
        (-7, "-7.000"),
        (0, "0"),
        (0, "-0"),
        (2**53 - 1, "9007199254740991"),
    ],
)
def test_an_argument_that_is_said_twice_is_the_same(value: Any, sent: str) -> None:
    # H-MOD-6: numbers count as what they are worth.
    check({"region": value}, region=sent)
    check({"limits": {"depth": value}}, depth=sent)


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("eu", "EU"),
        ("42", "42.0"),
        (True, "True"),
        (True, "1"),
        (1, "true"),
        (42, "43"),
        (42, "42.5"),
        (42, "42."),
        (42, "4.2e1"),
        (42, "0x2a"),
        (42, "+42"),
        (42, "٤٢"),
        (42, ""),
        (42.5, "42"),
        (42.5, "42.5"),
        (0, "0" * 21),
        (10**30, "1" + "0" * 30),
        ([], "[]"),
        ({}, "{}"),
        (None, "null"),
        (None, ""),
    ],
)
def test_an_argument_that_is_another_in_the_headers_is_refused(value: Any, sent: str) -> None:
    told = refused_argument({"region": value}, region=encode_value(sent))
    assert told == "Mcp-Param-Region does not equal its argument"


@pytest.mark.parametrize("value", ["eu", "", 0, False, 42.5, [], {}])
def test_an_argument_that_the_headers_leave_out_is_refused(value: Any) -> None:
    assert refused_argument({"region": value}) == "Mcp-Param-Region is missing"


@pytest.mark.parametrize(
    "arguments", [{}, {"region": None}, {"limits": {"depth": None}}, {"limits": 3}, [], None, "region"]
)
def test_an_argument_that_is_not_there_has_no_header(arguments: Any) -> None:
    check(arguments)
    assert refused_argument(arguments, region="eu") == "Mcp-Param-Region does not equal its argument"
    assert refused_argument(arguments, depth="1") == "Mcp-Param-Depth does not equal its argument"


def test_a_call_without_arguments_has_none_to_repeat() -> None:
    check_params(RequestHeaders(), call(), MIRRORED)


def test_a_header_of_an_argument_that_is_encoded_badly_is_refused() -> None:
    assert refused_argument({"region": "eu"}, region="=?base64?!?=") == "Mcp-Param-Region is malformed"


def test_headers_that_no_tool_asked_for_are_nobodys_business() -> None:
    check({"other": "eu"}, other="us", third="=?base64?!?=")
    check_params(RequestHeaders(params={"region": "us"}), call(arguments={"region": "eu"}), {})


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
        check_params(RequestHeaders(params={"region": "eu", "depth": "1"}), written(arguments), MIRRORED)
    # Where no header repeats anything, they are the server's business.
    check_params(RequestHeaders(params={"region": "eu"}), written(arguments), {})


def test_keys_beside_the_way_to_a_repeated_argument_are_free() -> None:
    arguments = '{"region":"eu","other":{"x":1,"x":2},"limits":{"depth":1,"more":{"Depth":1,"y":1,"y":2}}}'
    check_params(RequestHeaders(params={"region": "eu", "depth": "1"}), written(arguments), MIRRORED)
