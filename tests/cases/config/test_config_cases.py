"""The cases of `config`: files, and what is refused in them or differs from a file of required keys alone."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent
from typing import Any, Final

import pytest
from pydantic import BaseModel

from helpers.case_files import Case, Runner, rewrites
from helpers.case_values import Line, Lines, show
from taskgate.config import ConfigurationError, GatewayConfig, load

MINIMAL: Final = (
    "version: 1\nauth: {mode: none}\nupstreams:\n  reports: {path: /reports/mcp, url: 'http://127.0.0.1:3000/mcp'}\n"
)
WITH_TOKENS: Final = (
    "version: 1\nauth: {mode: required, issuers: {corp: {issuer: 'https://idp.example.com/'}}}\n"
    "upstreams:\n  reports: {path: /reports/mcp, url: 'http://127.0.0.1:3000/mcp'}\n"
)

UPSTREAM: Final = "version: 1\nauth: {mode: none}\nupstreams:\n  a:\n    path: /a\n    url: 'http://127.0.0.1:1/mcp'\n"
UPSTREAM_WITH_TOKENS: Final = (
    "version: 1\nauth: {mode: required, issuers: {corp: {issuer: 'https://idp.example.com'}}}\n"
    "upstreams:\n  reports:\n    path: /a\n    url: https://reports.internal/mcp\n"
)
_NAMED: Final = re.compile(r"^(upstreams|auth\.issuers)\.[^.]+")
"""The name of an upstream or an issuer in a path."""


def loaded(text: Lines, environ: Mapping[str, str] | None = None) -> Lines:
    """The complaints about a file, or its keys that differ from `MINIMAL`."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "taskgate.yaml"
        try:
            found = _load(file, text, environ or {})
        except ConfigurationError as error:
            told = "\n".join(f"! {problem}" for problem in error.problems)
        else:
            told = "\n".join(_changes(found)) or "as the file of required keys"
        return Lines(told.replace(str(file), "f").replace(folder, "/folder"))


def with_key(key: str, value: Line) -> Lines:
    """The same of the required keys and one more, by its dotted path, each on a line of its own."""
    tree: dict[str, Any] = {
        "version": "1",
        "auth": {"mode": "none"},
        "upstreams": {"reports": {"path": "/reports/mcp", "url": "http://127.0.0.1:3000/mcp"}},
    }
    if key.startswith(("auth.issuers.", "authorization.")):
        tree["auth"] = {"mode": "required", "issuers": {"corp": {"issuer": "https://idp.example.com/"}}}
    if key.startswith("auth.api_keys."):
        tree["auth"] = {"mode": "required", "api_keys": {"ci": {"hash": f"sha256:{64 * '0'}", "subject": "ci"}}}
    *sections, last = key.split(".")
    node = tree
    for section in sections:
        node = node.setdefault(section, {})
    node[last] = value
    return loaded(Lines("\n".join(_block(tree, 0)) + "\n"))


def _block(tree: dict[str, Any], depth: int) -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, str):
            yield f"{'  ' * depth}{key}: {value}"
        else:
            yield f"{'  ' * depth}{key}:"
            yield from _block(value, depth + 1)


def upstream(text: Lines, environ: Mapping[str, str] | None = None) -> Lines:
    """The same of `UPSTREAM` with more keys of that upstream, which begin on line 7."""
    return loaded(Lines(UPSTREAM + indent(text, "    ")), environ)


def upstream_with_tokens(text: Lines, environ: Mapping[str, str] | None = None) -> Lines:
    """The same of `UPSTREAM_WITH_TOKENS` with more keys of that upstream, which begin on line 7."""
    return loaded(Lines(UPSTREAM_WITH_TOKENS + indent(text, "    ")), environ)


def _changes(config: GatewayConfig) -> Iterator[str]:
    """The keys of a configuration that differ from a file of required keys, each with its value."""
    usual = _usual(MINIMAL if config.auth.mode == "none" else WITH_TOKENS)
    for key, value in _values(config).items():
        if usual.get(_NAMED.sub(_usual_name, key), None) != value:
            yield f"{key}: {value}"


def with_minimal(text: Lines, environ: Mapping[str, str] | None = None) -> Lines:
    """The same of `MINIMAL` and what is written below it."""
    return loaded(Lines(MINIMAL + text), environ)


def with_tokens(text: Lines, environ: Mapping[str, str] | None = None) -> Lines:
    """The same of `WITH_TOKENS` and what is written below it."""
    return loaded(Lines(WITH_TOKENS + text), environ)


@cache
def _usual(text: str) -> dict[str, str]:
    with TemporaryDirectory() as folder:
        return _values(_load(Path(folder) / "taskgate.yaml", text, {}))


def _usual_name(found: re.Match[str]) -> str:
    return f"{found[1]}.{'reports' if found[1] == 'upstreams' else 'corp'}"


def _load(file: Path, text: str, environ: Mapping[str, str]) -> GatewayConfig:
    file.write_text(text, encoding="utf-8")
    return load(file, environ)


def _values(value: Any, key: str = "") -> dict[str, str]:
    """The values of all keys, by their dotted paths."""
    return dict(_each(value, key))


def _each(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _each(each, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list | tuple) and any(isinstance(each, BaseModel) for each in value):
        for number, each in enumerate(value):
            yield from _each(each, f"{key}[{number}]")
    else:
        yield key, show(value)


SUBJECTS: Final[dict[str, object]] = {}
VALUES: Final[dict[str, Any]] = {}
OWN: Final = {
    each.__name__: each for each in (loaded, upstream, upstream_with_tokens, with_key, with_minimal, with_tokens)
}
RUNNER: Final = Runner("config", own=OWN)


@pytest.mark.parametrize("cases", RUNNER.sections.values(), ids=RUNNER.sections)
def test_each_input_has_its_output(cases: list[Case], request: pytest.FixtureRequest) -> None:
    RUNNER.check(cases, rewrite=rewrites(request))
