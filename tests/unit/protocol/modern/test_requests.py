"""Requests: parameters of hosts are prepared, and requests to servers are encoded."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.json_texts import objects, scalars
from requirements import covers
from taskgate.protocol.headers import check_headers, check_params, encode_value, read_headers
from taskgate.protocol.jsonrpc import parse, request_text
from taskgate.protocol.messages import Params, Request
from taskgate.protocol.meta import ObjectEdit, edit_object
from taskgate.protocol.modern import requests
from taskgate.protocol.server_messages import RequestDraft
from unit.protocol.modern.judge import INFO

# --- parameters of hosts ----------------------------------------------------------------------------------------------


def request(text: str) -> Request:
    message = parse(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{text}}}'.encode(), max_depth=64)
    assert isinstance(message, Request)
    return message


# --- requests to servers ----------------------------------------------------------------------------------------------


CAPABILITIES = '{"elicitation":{"form":{}}}'
META = "io.modelcontextprotocol/"


TOLD = {
    f"{META}protocolVersion": '"2026-07-28"',
    f"{META}clientCapabilities": '{"elicitation":{"form":{}}}',
    f"{META}clientInfo": INFO,
}

plain = objects(scalars, repeats=False)


@given(
    objects(scalars | plain, repeats=False) | st.sampled_from(["{ }", '{"\\u005fmeta":{"a":1}}', '{"a":"\\"_meta\\""}'])
)
def test_what_is_put_into_parameters_that_are_not_walked_is_what_a_walk_puts_there(text: str) -> None:
    message, _ = requests.encode_request(7, RequestDraft(method="tools/list", params=Params(text)), CAPABILITIES, INFO)
    assert message == request_text(7, "tools/list", edit_object(text, ObjectEdit(meta_put=TOLD)))


# --- headers


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "echo"}, "echo"),
        ("prompts/get", {"name": "p q"}, "p q"),
        ("resources/read", {"uri": "file:///süd"}, "=?base64?ZmlsZTovLy9zw7xk?="),
        ("tools/call", {"name": " t "}, "=?base64?IHQg?="),
        ("resources/read", {"uri": "x:" + "y" * 40_000}, "x:" + "y" * 40_000),
        ("prompts/list", {"name": "no"}, None),
        ("prompts/get", {}, None),
        ("prompts/get", {"name": None}, None),
        ("prompts/get", {"name": {"a": 1}}, None),
        ("prompts/get", {"name": "\ud800"}, None),
    ],
)
@covers("H-MOD-1", "H-MOD-3")
def test_a_header_repeats_the_name_where_the_method_has_one(method: str, params: Any, name: str | None) -> None:
    message, headers = requests.encode_request(
        7, RequestDraft(method=method, params=Params(json.dumps(params))), CAPABILITIES, INFO
    )
    assert headers.get("Mcp-Name") == name
    request = parse(message.encode(), max_depth=64)
    assert isinstance(request, Request)
    if name is not None:
        check_headers(read_headers(headers.items()), request, "2026-07-28", strict_names=True)


@given(
    st.sampled_from(["tools/call", "prompts/get", "resources/read"]),
    st.dictionaries(st.sampled_from(["name", "uri", "a"]), st.text(st.characters(exclude_categories=["Cs"]))),
    st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]),
    st.booleans(),
)
def test_the_name_is_found_however_it_is_written(
    method: str, params: dict[str, str], separators: tuple[str, str], ascii: bool
) -> None:
    text = json.dumps(params, separators=separators, ensure_ascii=ascii)
    headers = requests.encode_request(7, RequestDraft(method=method, params=Params(text)), CAPABILITIES, INFO).headers
    name = params.get("uri" if method == "resources/read" else "name")
    assert headers.get("Mcp-Name") == (None if name is None else encode_value(name))


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("south", "south"),
        ("süd", "=?base64?c8O8ZA==?="),
        (12, "12"),
        (-3.0, "-3"),
        (True, "true"),
        (False, "false"),
        ("", ""),
        (None, None),
        (1.5, None),
        ([], None),
        ("\ud800", None),
    ],
)
@covers("H-MOD-5")
def test_a_header_repeats_an_argument_that_is_there(value: Any, header: str | None) -> None:
    text = json.dumps({"name": "t", "arguments": {"in": {"a": value}}})
    saying = RequestDraft(method="tools/call", params=Params(text), header_paths={"Region": ("in", "a")})
    message, headers = requests.encode_request(7, saying, CAPABILITIES, INFO)
    assert headers.get("Mcp-Param-Region") == header
    request = parse(message.encode(), max_depth=64)
    assert isinstance(request, Request)
    if header is not None:
        check_params(read_headers(headers.items()).params, request, {"Region": ("in", "a")})
