"""Arguments of a tool from a command line, typed by its input schema."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.cli.host.tool_arguments import ArgumentInvalid, read_arguments, read_typed

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
    lambda each: st.lists(each) | st.dictionaries(st.text(st.characters(codec="utf-8")), each),
    max_leaves=5,
)


def typed(text: str, part: Any, **root: Any) -> Any:
    return read_typed([f"a={text}"], {"properties": {"a": part}, **root})["a"]


@pytest.mark.parametrize(
    ("text", "part", "value"),
    [
        ("1", {"type": "integer"}, 1),
        ("1.0", {"type": "integer"}, 1),
        ("1", {"type": "number"}, 1),
        ("1.5", {"type": "number"}, 1.5),
        ("1", {"type": "string"}, "1"),
        ("", {"type": "string"}, ""),
        ('"1"', {"type": "string"}, '"1"'),
        ('"1"', {"type": ["string", "integer"]}, "1"),
        ("a=b", {"type": "string"}, "a=b"),
        ("true", {"type": "boolean"}, True),
        ("null", {"type": ["string", "null"]}, None),
        ("007", {"type": ["string", "integer"]}, "007"),
        ("7", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 7),
        ("[1]", {"type": "array"}, [1]),
        ('{"b": 1}', {"$ref": "#/$defs/B"}, {"b": 1}),
        ("red", {"enum": ["red", "green"]}, "red"),
        ("2", {"enum": [1, 2]}, 2),
        ("2", {}, 2),
        ("two", None, "two"),
        ("2", {"$ref": "#/nowhere"}, 2),
        ("2", {"$ref": "#/properties/a"}, 2),
        ("2", {"type": "surprise"}, 2),
    ],
)
def test_a_value_is_of_the_type_that_the_schema_names(text: str, part: Any, value: Any) -> None:
    found = typed(text, part, **{"$defs": {"B": {"type": "object"}}})
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "kind"), [("x", "integer"), ("1.5", "integer"), ("yes", "boolean"), ("{", "object"), ("true", "number")]
)
def test_a_value_of_another_type_is_refused_with_the_type(text: str, kind: str) -> None:
    with pytest.raises(ArgumentInvalid, match=f"--arg a must be of type {kind}"):
        typed(text, {"type": kind})


def test_an_argument_that_the_tool_does_not_have_is_refused_with_one_that_is_near() -> None:
    schema = {"properties": {"quarter": {}}, "additionalProperties": False}
    with pytest.raises(ArgumentInvalid, match="no such argument; did you mean quarter"):
        read_typed(["quater=Q3"], schema)
    assert read_typed(["quater=Q3"], {"properties": {"quarter": {}}}) == {"quater": "Q3"}


@pytest.mark.parametrize("pairs", [["a"], ["=1"], ["a=1", "a=2"]])
def test_what_is_no_pair_or_stands_twice_is_refused(pairs: list[str]) -> None:
    with pytest.raises(ArgumentInvalid):
        read_typed(pairs, {})


@given(JSON)
def test_any_value_written_as_json_is_read_where_the_schema_does_not_say(value: Any) -> None:
    assert typed(json.dumps(value), {}) == value


@given(st.text(), JSON)
def test_no_text_and_no_schema_ends_in_another_error(text: str, schema: Any) -> None:
    with suppress(ArgumentInvalid):
        assert [*read_typed([f"a={text}"], {"properties": {"a": schema}, "$defs": schema})] == ["a"]


def test_an_object_is_read_from_the_command_line_or_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "arguments.json"
    file.write_text('{"a": [1]}')
    assert read_arguments('{"a": 1}') == {"a": 1}
    assert read_arguments(f"@{file}") == {"a": [1]}
    for wrong in ("[1]", "{", "@/no/such/file", "@", "[" * 100_000):
        with pytest.raises(ArgumentInvalid, match="--args-json"):
            read_arguments(wrong)
