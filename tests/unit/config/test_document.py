"""YAML as people and their enemies write it: odd types, odd files, and never more than the words that are there."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from taskgate.config import ConfigurationError, GatewayConfig, Problem, load
from taskgate.config.document import MAX_FILE, read_document

Loads = Callable[..., GatewayConfig]
Tells = Callable[..., list[str]]

WHOLE_FILES = [
    (b"", "1: is empty"),
    (b"# a comment\n", "1: is empty"),
    (b"---\n...\n", "1: is empty"),
    (b"null\n", "1: is empty"),
    (b"\n- a\n", "2: must be a mapping of keys to values"),
    (b"text\n", "1: must be a mapping of keys to values"),
    (b"version: 1\n# \xe4\n", "2: is not UTF-8 text"),
    ("version: 1\n".encode("utf-16"), "1: is not UTF-8 text"),
    (b"version: 1\n---\nversion: 1\n", "3: must hold one document only"),
    (b"version: 1\nserver: [1\n", "3: is not YAML: expected ',' or ']', but got '<stream end>'"),
    (b"version: 1\nserver: a: b\n", "2: is not YAML: mapping values are not allowed here"),
    (b"\tversion: 1\n", "1: is not YAML: found character '\\t' that cannot start any token"),
    (b"version: 1\nserver: \x07\n", "2: is not YAML: it holds a control character"),
    (b"%YAML 2.0\n---\nversion: 1\n", "1: is not YAML: found incompatible YAML document (version 1.* is required)"),
    (b"version: 1\nserver: " + b"[" * 33, "2: is nested deeper than 32 levels"),
    (b"version: 1\nserver: " + b"[" * 100_000, "2: is nested deeper than 32 levels"),
    (b"#" * (MAX_FILE + 1), "1: is larger than 1MiB"),
]


@pytest.mark.parametrize(("content", "told"), WHOLE_FILES, ids=lambda each: ascii(each)[:40])
def test_a_file_that_is_no_mapping_is_told_with_its_line(file: Path, content: bytes, told: str) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigurationError) as refused:
        load(file, {})
    assert str(refused.value) == f"{file}:{told}"


def test_a_file_that_is_missing_or_a_directory_is_told(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none.yaml", "cannot be read: No such file or directory"),
        (tmp_path, "cannot be read: Is a directory"),
        (tmp_path / "a\0b", "cannot be read: no file can have this name"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            load(path, {})
        [problem] = refused.value.problems
        assert (problem.line, problem.path, problem.message) == (None, "", reason)


def test_a_file_of_the_largest_size_is_read(file: Path, minimal: str) -> None:
    file.write_text(minimal.ljust(MAX_FILE - 1, "#").replace("}\n#", "}\n#", 1) + "\n")
    assert load(file, {}).version == 1


def test_a_byte_order_mark_and_an_end_of_the_document_are_allowed(loads: Loads, minimal: str) -> None:
    assert loads("\ufeff" + minimal + "...\n") == loads(minimal)


def test_what_grows_by_aliases_is_refused_before_it_grows(tells: Tells, minimal: str) -> None:
    lines = [f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9)}]" for n in range(1, 30)]
    told = tells(minimal + "k0: &k0 [x]\n" + "\n".join(lines) + "\n")
    assert sum("must not be an alias" in line for line in told) == 29 * 9


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.sampled_from("abv:{}[],'\"!&*%@|>?-#~ \t\n\\$0.\x00\x85\u2028\ud800"), max_size=40))
@example("&a")
@example("|\x85\x85 ")
@example("? ")
@example("a: !<>")
@example("--- |\n a")
@example('"\\ud800": "\\x"')
def test_any_text_is_a_document_or_a_complaint(text: str) -> None:
    problems: tuple[Problem, ...]
    try:
        problems = read_document(text, file="f", environ={}).problems
    except ConfigurationError as refused:
        problems = refused.problems
    assert all(str(problem).startswith("f:") and str(problem).isprintable() for problem in problems)
