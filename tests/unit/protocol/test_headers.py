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
    is_plain,
    read_header_paths,
    read_headers,
)
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Request
from taskgate.protocol.vocabulary import MODERN_METHODS

# --- reading and comparing --------------------------------------------------------------------------------------------


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
def test_a_header_that_is_sent_twice_is_found_even_with_the_same_value(name: str, told: str, again: str) -> None:
    # H-MOD-4.
    headers = read_headers([(name, "a"), (name.upper(), again)])
    assert headers.duplicate == told


def test_the_first_header_that_is_sent_twice_is_told() -> None:
    fields = [("Mcp-Name", "a"), ("Mcp-Name", "a"), ("Mcp-Method", "b"), ("Mcp-Method", "b")]
    assert read_headers(fields).duplicate == "Mcp-Name"


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
    assert (headers.duplicate is None) == (len(theirs) == len(set(theirs)))


def test_headers_that_are_sent_once_are_none_too_many() -> None:
    fields = [("Mcp-Name", "a"), ("Mcp-Method", "a"), ("Mcp-Param-A", "a"), ("Mcp-Param-B", "a")]
    assert read_headers(fields).duplicate is None


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
    check_params({}, call(), MIRRORED)


def test_a_header_of_an_argument_that_is_encoded_badly_is_refused() -> None:
    assert refused_argument({"region": "eu"}, region="=?base64?!?=") == "Mcp-Param-Region is malformed"


def test_headers_that_no_tool_asked_for_are_nobodys_business() -> None:
    check({"other": "eu"}, other="us", third="=?base64?!?=")
    check_params({"region": "us"}, call(arguments={"region": "eu"}), {})


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


def test_keys_beside_the_way_to_a_repeated_argument_are_free() -> None:
    arguments = '{"region":"eu","other":{"x":1,"x":2},"limits":{"depth":1,"more":{"Depth":1,"y":1,"y":2}}}'
    check_params({"region": "eu", "depth": "1"}, written(arguments), MIRRORED)


# --- values -----------------------------------------------------------------------------------------------------------


ENCODED = {
    "us-west1": "us-west1",
    "a b": "a b",
    "": "",
    "Hello, 世界": "=?base64?SGVsbG8sIOS4lueVjA==?=",
    " padded ": "=?base64?IHBhZGRlZCA=?=",
    "a\tb": "=?base64?YQli?=",
    "line1\nline2": "=?base64?bGluZTEKbGluZTI=?=",
    "\x7f": "=?base64?fw==?=",
    "=?base64?literal?=": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
    "=?base64?=": "=?base64?PT9iYXNlNjQ/PQ==?=",
    "=?base64?open": "=?base64?open",
    "closed?=": "closed?=",
    "=?BASE64?literal?=": "=?BASE64?literal?=",
}


@pytest.mark.parametrize(("text", "sent"), ENCODED.items(), ids=repr)
def test_a_text_is_sent_as_it_is_where_that_is_safe_and_says_nothing_else(text: str, sent: str) -> None:
    # H-MOD-3.
    assert encode_value(text) == sent
    assert decode_value(sent) == text


@pytest.mark.parametrize(("value", "sent"), [(42, "42"), (-7, "-7"), (0, "0"), (True, "true"), (False, "false")])
def test_numbers_and_truth_are_sent_as_json_writes_them(value: int, sent: str) -> None:
    assert encode_value(value) == sent


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


@pytest.mark.parametrize(
    "sent",
    [
        "=?base64?SGVsbG8?=",
        "=?base64?SGVs bG8=?=",
        "=?base64?SGVsbG8=\n?=",
        "=?base64?SGVsbG8==?=",
        "=?base64?SGVsbG9=?=",
        "=?base64?SGVsbG8=SGVsbG8=?=",
        "=?base64?_-__?=",
        "=?base64?世?=",
        "=?base64?/w==?=",
        "=?base64?7aCA?=",
        "é",
        "\udce9",
        "a\nb",
        "\x00",
        "\x7f",
        " a",
        "a\t",
        "a\n",
    ],
    ids=repr,
)
def test_what_is_encoded_badly_or_should_have_been_is_no_value(sent: str) -> None:
    with pytest.raises(ValueError):
        decode_value(sent)


@pytest.mark.parametrize(
    "sent", ["=?base64?SGVsbG8=", "SGVsbG8=?=", "=?Base64?SGVsbG8=?=", "?base64?SGVsbG8=?=", "a\tb"]
)
def test_what_lacks_a_mark_is_meant_as_it_is(sent: str) -> None:
    assert decode_value(sent) == sent


def test_a_text_that_no_encoding_could_write_is_not_encoded() -> None:
    with pytest.raises(ValueError):
        encode_value("\ud800")


@pytest.mark.parametrize(
    ("value", "plain"),
    [("", True), ("a", True), ("a\tb c", True), ("=?base64?", True), (" a", False), ("é", False), ("a\r\nb", False)],
)
def test_a_value_can_be_sent_as_it_is_where_it_is_plain(value: str, plain: bool) -> None:
    assert is_plain(value) is plain


# --- annotations of a tool --------------------------------------------------------------------------------------------


def named(name: object, kind: object = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name}


def within(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    "schema", [{}, within(a={"type": "string"}), within(), True, None, "x-mcp-header", ["x-mcp-header"]]
)
def test_a_tool_that_asks_for_no_header_has_none(schema: object) -> None:
    assert read_header_paths(schema) == {}


@pytest.mark.parametrize("kind", ["string", "integer", "boolean"])
def test_an_argument_of_a_simple_type_can_be_repeated(kind: str) -> None:
    assert read_header_paths(within(region=named("Region", kind))) == {"Region": ("region",)}


def test_arguments_are_found_at_any_depth_that_names_lead_to() -> None:
    inner = within(deep=named("B"), **{"x-mcp-header": named("C")})
    schema = within(a=named("A"), properties=inner)
    assert read_header_paths(schema) == {
        "A": ("a",),
        "B": ("properties", "deep"),
        "C": ("properties", "x-mcp-header"),
    }


@pytest.mark.parametrize("name", ["A", "a-b_c.d", "!#$%&'*+-.^_`|~09"])
def test_a_name_is_what_a_header_can_be_called(name: str) -> None:
    assert read_header_paths(within(a=named(name))) == {name: ("a",)}


@pytest.mark.parametrize(
    "name", ["", "a b", "a:b", "a\n", "\r", "é", "a/b", "(a)", 'a"', "a\x00", None, 1, True, [], {}]
)
def test_no_other_name_is_taken(name: object) -> None:
    with pytest.raises(ValueError, match="no name of a header"):
        read_header_paths(within(a=named(name)))


@pytest.mark.parametrize("kind", ["number", "object", "array", "null", None, ["string", "null"], ["string"], 1, {}])
def test_no_argument_of_another_type_is_repeated(kind: object) -> None:
    with pytest.raises(ValueError, match="primitive type"):
        read_header_paths(within(a=named("A", kind)))


def test_no_argument_without_a_type_is_repeated() -> None:
    with pytest.raises(ValueError, match="primitive type"):
        read_header_paths(within(a={"x-mcp-header": "A"}))


@pytest.mark.parametrize("other", ["Region", "REGION", "region"])
def test_no_two_arguments_share_a_header(other: str) -> None:
    with pytest.raises(ValueError, match="the same name"):
        read_header_paths(within(a=named("Region"), b=within(c=named(other))))


@pytest.mark.parametrize(
    "schema",
    [
        named("A"),
        within() | named("A", "string"),
        within(a={"type": "array", "items": named("A")}),
        within(a={"type": "array", "prefixItems": [named("A")]}),
        within(a={"anyOf": [named("A"), {"type": "null"}]}),
        within(a={"anyOf": [within(b=named("A"))]}),
        within(a={"not": named("A")}),
        {"additionalProperties": named("A")},
        {"$defs": {"a": named("A")}},
        {"$defs": {"a": within(b=named("A"))}},
        {"patternProperties": {".*": named("A")}},
        {"properties": [named("A")]},
        {"if": within(a=named("A"))},
        {"oneOf": [[named("A")]]},
    ],
)
def test_nothing_is_repeated_that_no_name_leads_to(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no name leads"):
        read_header_paths(schema)


@pytest.mark.parametrize("keyword", ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"])
def test_a_name_that_reads_like_a_keyword_is_a_name_still(keyword: str) -> None:
    assert read_header_paths({keyword: {"x-mcp-header": {"type": "string"}}}) == {}
    if keyword != "properties":
        with pytest.raises(ValueError, match="no name leads"):
            read_header_paths({keyword: {"default": named("A")}})


@pytest.mark.parametrize("keyword", ["default", "const", "enum", "examples"])
def test_a_value_in_a_schema_asks_for_nothing(keyword: str) -> None:
    assert read_header_paths(within(a={"type": "string", keyword: [named("A")]})) == {}


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
