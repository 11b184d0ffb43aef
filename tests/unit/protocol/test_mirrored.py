"""A tool may have an argument repeated in a header where one name leads to one simple value, and nowhere else."""

from typing import Any

import pytest

from taskgate.protocol.mirrored import mirrored_arguments


def named(name: object, kind: object = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name}


def within(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    "schema", [{}, within(a={"type": "string"}), within(), True, None, "x-mcp-header", ["x-mcp-header"]]
)
def test_a_tool_that_asks_for_no_header_has_none(schema: object) -> None:
    assert mirrored_arguments(schema) == {}


@pytest.mark.parametrize("kind", ["string", "integer", "boolean"])
def test_an_argument_of_a_simple_type_can_be_repeated(kind: str) -> None:
    assert mirrored_arguments(within(region=named("Region", kind))) == {"Region": ("region",)}


def test_arguments_are_found_at_any_depth_that_names_lead_to() -> None:
    inner = within(deep=named("B"), **{"x-mcp-header": named("C")})
    schema = within(a=named("A"), properties=inner)
    assert mirrored_arguments(schema) == {
        "A": ("a",),
        "B": ("properties", "deep"),
        "C": ("properties", "x-mcp-header"),
    }


@pytest.mark.parametrize("name", ["A", "a-b_c.d", "!#$%&'*+-.^_`|~09"])
def test_a_name_is_what_a_header_can_be_called(name: str) -> None:
    assert mirrored_arguments(within(a=named(name))) == {name: ("a",)}


@pytest.mark.parametrize(
    "name", ["", "a b", "a:b", "a\n", "\r", "é", "a/b", "(a)", 'a"', "a\x00", None, 1, True, [], {}]
)
def test_no_other_name_is_taken(name: object) -> None:
    with pytest.raises(ValueError, match="no name of a header"):
        mirrored_arguments(within(a=named(name)))


@pytest.mark.parametrize("kind", ["number", "object", "array", "null", None, ["string", "null"], ["string"], 1, {}])
def test_no_argument_of_another_type_is_repeated(kind: object) -> None:
    with pytest.raises(ValueError, match="primitive type"):
        mirrored_arguments(within(a=named("A", kind)))


def test_no_argument_without_a_type_is_repeated() -> None:
    with pytest.raises(ValueError, match="primitive type"):
        mirrored_arguments(within(a={"x-mcp-header": "A"}))


@pytest.mark.parametrize("other", ["Region", "REGION", "region"])
def test_no_two_arguments_share_a_header(other: str) -> None:
    with pytest.raises(ValueError, match="the same name"):
        mirrored_arguments(within(a=named("Region"), b=within(c=named(other))))


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
        mirrored_arguments(schema)


@pytest.mark.parametrize("keyword", ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"])
def test_a_name_that_reads_like_a_keyword_is_a_name_still(keyword: str) -> None:
    assert mirrored_arguments({keyword: {"x-mcp-header": {"type": "string"}}}) == {}
    if keyword != "properties":
        with pytest.raises(ValueError, match="no name leads"):
            mirrored_arguments({keyword: {"default": named("A")}})


@pytest.mark.parametrize("keyword", ["default", "const", "enum", "examples"])
def test_a_value_in_a_schema_asks_for_nothing(keyword: str) -> None:
    assert mirrored_arguments(within(a={"type": "string", keyword: [named("A")]})) == {}


def test_a_deep_schema_is_read_like_any_other() -> None:
    schema = named("A")
    for _ in range(1500):
        schema = within(a=schema)
    (path,) = mirrored_arguments(schema).values()
    assert len(path) == 1500


def test_a_schema_with_very_many_arguments_is_read_in_a_time_that_grows_no_faster_than_it_does() -> None:
    looks = 0

    class Name(str):
        def lower(self) -> str:
            nonlocal looks
            looks += 1
            return super().lower()

    properties = {f"a{turn}": named(Name(f"A{turn}")) for turn in range(100)}
    assert len(mirrored_arguments(within(**properties))) == 100
    assert looks == 100
