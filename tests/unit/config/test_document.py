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

# What stands without quotes, and the value it is by YAML 1.2's core schema; 1.1 would read many of them otherwise.
PLAIN = [
    ("~", None), ("", None), ("Null", None), ("nUll", "nUll"),
    ("true", True), ("TRUE", True), ("tRue", "tRue"), ("yes", "yes"),
    ("No", "No"), ("on", "on"), ("off", "off"),
    ("False", False), ("-7", -7), ("+7", 7), ("017", 17), ("0o17", 15), ("0x1F", 31), ("1_000", "1_000"),
    ("0b1", "0b1"),
    ("1:30", "1:30"), ("190:20:30", "190:20:30"), ("2026-01-02", "2026-01-02"),
    ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
    ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("-.inf", float("-inf")), ("1.2.3", "1.2.3"), ("=", "="),
    ("'7'", "7"), ('"true"', "true"), ("'~'", "~"), ("9" * 19, "9" * 19), ("|\n  a\n  b", "a\nb\n"),
]  # fmt: skip


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


@pytest.mark.parametrize(("text", "value"), PLAIN, ids=lambda each: repr(each)[:30])
def test_scalars_are_read_by_the_core_schema(text: str, value: object) -> None:
    written = read_document(f"key: {text}\n", file="f", environ={}).raw["key"]
    assert (type(written), written) == (type(value), value)


def test_not_a_number_is_read_as_such() -> None:
    assert str(read_document("key: .NaN\n", file="f", environ={}).raw["key"]) == "nan"


ODD = [
    ("version: 1\n", "5: version: is already given on line 1"),
    ("server: {max_body: 1MiB, max_body: 2MiB}\n", "5: server.max_body: is already given on line 5"),
    ("admin: &a {}\nserver: *a\n", "6: server: must not be an alias: write the value out"),
    ("server: {<<: {max_body: 1MiB}}\n", '5: server."<<": unknown key'),
    ("server: !!map {}\n", "5: server: must not have a tag"),
    ("tasks: {max_result: !!str 1MiB}\n", "5: tasks.max_result: must not have a tag"),
    ("server: !!python/object:os.system {}\n", "5: server: must not have a tag"),
    ("? [a, b]\n: c\n", "5: must have plain words as keys"),
    ("server:\n  ? {a: b}\n  : {c: [d]}\n", "6: server: must have plain words as keys"),
    ("servr: {}\n", "5: servr: unknown key (did you mean server?)"),
    ("server:\n  drain: {delays: 1s}\n", "6: server.drain.delays: unknown key (did you mean delay?)"),
    ("tasks: {upgrade: [{tool: a, mode: auto, tols: b}]}\n",
     "5: tasks.upgrade[0].tols: unknown key (did you mean tool?)"),
    ("  b: {path: /b, url: 'http://b', ulr: x}\n", "5: upstreams.b.ulr: unknown key (did you mean url?)"),
    ("1: 2\n", "5: 1: unknown key"),
    ("'': 2\n", '5: "": unknown key'),
    (r'"a\nb\e[31m": 2' + "\n", r'5: "a\nb\x1b[31m": unknown key'),
    ("x" * 65 + ": 2\n", f'5: "{"x" * 64}…": unknown key'),
]  # fmt: skip


@pytest.mark.parametrize(("more", "told"), ODD, ids=lambda each: ascii(each)[:40])
def test_odd_yaml_is_told_in_place(tells: Tells, minimal: str, more: str, told: str) -> None:
    assert tells(minimal + more) == [f"f:{told}"]


def test_what_grows_by_aliases_is_refused_before_it_grows(tells: Tells, minimal: str) -> None:
    lines = [f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9)}]" for n in range(1, 30)]
    told = tells(minimal + "k0: &k0 [x]\n" + "\n".join(lines) + "\n")
    assert sum("must not be an alias" in line for line in told) == 29 * 9


def test_problems_before_the_place_where_yaml_ends_are_told_too(tells: Tells) -> None:
    assert tells("version: *v\nserver: [\n") == [
        "f:1: version: must not be an alias: write the value out",
        "f:3: is not YAML: expected the node content, but found '<stream end>'",
    ]


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
