"""Paths of what is taken out of arguments: RFC 9535, read strictly."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.telemetry.auditlog.formats.redaction import REDACTED, parse_paths


@pytest.mark.parametrize(
    ("paths", "value", "left"),
    [
        ([], {"a": 1}, {"a": 1}),
        (["$"], {"a": 1}, REDACTED),
        (["$.a", "$"], {"a": 1}, REDACTED),
        (["$.a"], {"a": 1, "b": {"a": 2}}, {"a": REDACTED, "b": {"a": 2}}),
        (["$..a"], {"a": {"a": 1}, "b": [{"a": 2}]}, {"a": REDACTED, "b": [{"a": REDACTED}]}),
        (["$.a[1]"], {"a": [1, 2]}, {"a": [1, REDACTED]}),
        (["$.a[?@.k == 'key'].v"], {"a": [{"k": "key", "v": 1}]}, {"a": [{"k": "key", "v": REDACTED}]}),
        (["$..a", "$..b"], {"a": {"b": 1}, "b": 2}, {"a": REDACTED, "b": REDACTED}),
        (["$.a"], [1], [1]),
        (["$.a"], 7, 7),
        (["$..A"], {"a": 1}, {"a": REDACTED}),
        (
            ["$..password"],
            {"Password": 1, "x": [{"PASSWORD": 2, "password": 3}], "passwords": 4},
            {"Password": REDACTED, "x": [{"PASSWORD": REDACTED, "password": REDACTED}], "passwords": 4},
        ),
        (["$['straße']"], {"STRASSE": 1}, {"STRASSE": REDACTED}),
        (["$['a', 'b'].C"], {"A": {"c": 1}, "b": {"C": 2}}, {"A": {"c": REDACTED}, "b": {"C": REDACTED}}),
    ],
)  # fmt: skip
def test_what_a_path_finds_is_taken_out(paths: list[str], value: Any, left: Any) -> None:
    assert parse_paths(paths).apply(value) == left


@pytest.mark.parametrize("path", ["", "password", "$..", "$.a~", "$[", "$.a | $.b", "$.a["])
def test_what_is_no_path_is_refused_in_one_line(path: str) -> None:
    with pytest.raises(ValueError, match="is not a valid JSONPath") as refused:
        parse_paths(["$.fine", path])
    assert "\n" not in str(refused.value)


def test_what_is_nested_too_deep_to_be_searched_is_refused() -> None:
    deep: Any = {}
    for _ in range(300):
        deep = {"a": deep}
    with pytest.raises(ValueError, match="nested too deep"):
        parse_paths(["$..password"]).apply(deep)


@given(st.text(st.sampled_from("$.@*[]()?'\"ab0:,!<=>&|~\\ \n"), max_size=12))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        redaction = parse_paths([text])
    except ValueError:
        return
    redaction.apply({"a": [{"b": 1}], "b": {"a": "x"}})
