"""A file to write, and the two ways to look at what comes of it: a configuration, or lines of complaint."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from taskgate.config import ConfigurationError, GatewayConfig, json_schema, load

Loads = Callable[..., GatewayConfig]
Tells = Callable[..., list[str]]

MINIMAL = (
    "version: 1\nauth: {mode: none}\nupstreams:\n  reports: {path: /reports/mcp, url: 'http://127.0.0.1:3000/mcp'}\n"
)
WITH_TOKENS = (
    "version: 1\nauth: {mode: required, issuers: {corp: {issuer: 'https://idp.example.com/'}}}\n"
    "upstreams:\n  reports: {path: /reports/mcp, url: 'http://127.0.0.1:3000/mcp'}\n"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the file is written; messages of `tells` call it `f`."""
    return tmp_path / "taskgate.yaml"


@pytest.fixture
def loads(file: Path) -> Loads:
    """The configuration that a text means."""

    def written(text: str, environ: Mapping[str, str] | None = None) -> GatewayConfig:
        file.write_text(text, encoding="utf-8")
        return load(file, environ or {})

    return written


@pytest.fixture
def tells(file: Path, loads: Loads) -> Tells:
    """The complaints about a text, or about bytes, one line each; the file is called `f`. None where it loads."""

    def complaints(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
        try:
            loads(text, environ)
        except ConfigurationError as error:
            refused = error
        else:
            return []
        lines = str(refused).split("\n")
        assert lines == [str(problem) for problem in refused.problems]
        return [line.replace(str(file), "f", 1) for line in lines]

    return complaints


@pytest.fixture
def minimal() -> str:
    """A file of four lines with nothing in it that has a default."""
    return MINIMAL


@pytest.fixture
def with_tokens() -> str:
    """As `minimal`, with tokens of one issuer, which is called `corp`."""
    return WITH_TOKENS


@pytest.fixture
def with_key() -> Callable[[str, str], str]:
    """A text of required keys and one more, given by its dotted path and its value as YAML, each key on its line.

    Where the key is about tokens, callers have those of one issuer, `corp`. Where it is about API keys, they have one,
    `ci`. Else there is no authentication.
    """
    return _with_key


@pytest.fixture
def value_at() -> Callable[[GatewayConfig, str], Any]:
    """The value at a dotted path, which may lead through the names of upstreams and issuers."""
    return _value_at


@pytest.fixture
def schema_keys() -> set[str]:
    """The dotted paths of the schema, with `reports` for an upstream, `corp` for an issuer, and `ci` for an API key."""
    return _keys(json_schema())


def _value_at(value: Any, key: str) -> Any:
    for part in key.split("."):
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def _short_at(config: GatewayConfig, key: str) -> Any:
    value = _value_at(config, key)
    if key == "limits.rate":
        return [
            (each.name, each.scope, str(each.rate), each.burst, each.methods, each.event, each.before_auth)
            for each in value
        ]
    if key == "audit.sinks":
        return [(each.name, each.type, each.path, each.events, each.fsync) for each in value]
    return [(rule.upstream, rule.tool, rule.mode) for rule in value] if key == "tasks.upgrade" else value


def _keys(node: dict[str, Any], path: str = "") -> set[str]:
    # What may be null is a section all the same.
    node = next((each for each in node.get("anyOf", []) if "properties" in each), node)
    children = dict(node.get("properties", {}))
    for named in node.get("patternProperties", {}).values():
        if "properties" in named:
            children[{"auth.issuers": "corp", "auth.api_keys": "ci"}.get(path, "reports")] = named
    if not children:
        return {path}
    return set().union(*(_keys(child, f"{path}.{key}".lstrip(".")) for key, child in children.items()))


def _with_key(path: str, value: str) -> str:
    tree: dict[str, Any] = {
        "version": "1",
        "auth": {"mode": "none"},
        "upstreams": {"reports": {"path": "/reports/mcp", "url": "http://127.0.0.1:3000/mcp"}},
    }
    if path.startswith(("auth.issuers.", "authorization.")):
        tree["auth"] = {"mode": "required", "issuers": {"corp": {"issuer": "https://idp.example.com/"}}}
    if path.startswith("auth.api_keys."):
        tree["auth"] = {"mode": "required", "api_keys": {"ci": {"hash": f"sha256:{64 * '0'}", "subject": "ci"}}}
    *sections, last = path.split(".")
    node = tree
    for section in sections:
        node = node.setdefault(section, {})
    node[last] = value
    return "\n".join(_block(tree, 0)) + "\n"


def _block(tree: dict[str, Any], depth: int) -> list[str]:
    lines: list[str] = []
    for key, value in tree.items():
        if isinstance(value, str):
            lines.append(f"{'  ' * depth}{key}: {value}")
        else:
            lines += [f"{'  ' * depth}{key}:", *_block(value, depth + 1)]
    return lines
