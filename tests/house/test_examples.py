"""The example configurations load, the published schema is the real one, and the page of the keys has all of them."""

import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from taskgate.config import effective, json_schema, load

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "config"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))
PAGE = ROOT / "docs" / "configuration.md"

_NAMED = "*"


def _leaves(node: dict[str, Any], path: str = "", *, needed: bool = False) -> dict[str, tuple[dict[str, Any], bool]]:
    """The schema of every key that is no section, by dotted path, and whether the key is required."""
    children = dict(node.get("properties", {}))
    for child in node.get("patternProperties", {}).values():
        if "properties" in child:
            children[_NAMED] = child
    named = node.get("additionalProperties")
    if isinstance(named, dict):
        children.update((_NAMED, each) for each in named.get("anyOf", ()) if "properties" in each)
    if node.get("type") == "array" and "properties" in node["items"]:
        return {path: (node, needed)} | _leaves(node["items"], f"{path}[]")
    nullable = next((each for each in node.get("anyOf", []) if "properties" in each), None)
    if nullable is not None:
        return {path: (node, needed)} | _leaves(nullable, path)
    if not children:
        return {path: (node, needed)}
    found: dict[str, tuple[dict[str, Any], bool]] = {}
    for key, child in children.items():
        found |= _leaves(child, f"{path}.{key}".lstrip("."), needed=key in node.get("required", []))
    return found


def _written(node: Any, path: str = "") -> set[str]:
    """The dotted paths of the values in a file, with `*` for the names of upstreams, issuers and extensions."""
    is_section = path not in KEYS or any(key.startswith(f"{path}.") for key in KEYS)
    if isinstance(node, dict) and is_section:
        keys = {key: key if f"{path}.{key}".lstrip(".") in SECTIONS else _NAMED for key in node}
        own = {path} & set(KEYS)
        return own.union(*(_written(each, f"{path}.{keys[key]}".lstrip(".")) for key, each in node.items()))
    if isinstance(node, list) and node and isinstance(node[0], dict):
        return {path}.union(*(_written(each, f"{path}[]") for each in node))
    return {path}


KEYS = _leaves(json_schema())
SECTIONS = {".".join(key.split(".")[:end]).removesuffix("[]") for key in KEYS for end in range(1, key.count(".") + 2)}
"""The keys and the sections that they stand in, as the schema has them: what is none of these has a name of its own."""


def test_there_are_examples() -> None:
    assert {path.name for path in EXAMPLES} >= {
        *("minimal.yaml", "full.yaml", "jwt.yaml", "limits.yaml", "replicas.yaml", "servers.yaml")
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_loads_and_is_valid_by_the_schema_that_it_names(path: Path) -> None:
    assert load(path, {}).version == 1
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    named = first.removeprefix("# yaml-language-server: $schema=")
    published = json.loads((path.parent / named).read_text(encoding="utf-8"))
    found = Draft202012Validator(published).iter_errors(YAML(typ="safe").load(path))
    assert [error.message for error in found] == []


def test_the_published_schema_is_the_one_that_the_command_prints() -> None:
    assert (FOLDER / "schema.json").read_bytes() == orjson.dumps(json_schema(), option=orjson.OPT_INDENT_2) + b"\n"


def test_the_full_example_has_every_key() -> None:
    assert _written(YAML(typ="safe").load(FOLDER / "full.yaml")) == set(KEYS)


KEY_HASH = "97bad7190de4439df19ee6a21d81ea37c46d08cc387f1c17a952a367ed4a1be9"


def test_the_full_example_has_the_defaults(tmp_path: Path) -> None:
    reduced = tmp_path / "reduced.yaml"
    reduced.write_text(
        "version: 1\nauth: {mode: required, issuers: {corp: {issuer: 'https://idp.example.com/'}}, "
        f"api_keys: {{ci: {{subject: ci, hash: 'sha256:{KEY_HASH}'}}}}}}\n"
        "upstreams: {reports: {path: /reports/mcp, url: 'http://127.0.0.1:3000/mcp', "
        "timeouts: {tools: [{tool: '*'}]}, extensions: {com.example/widgets: {}}}}\n"
        "tasks: {upgrade: [{tool: '*', mode: auto, handoff: {after: 45s}}]}\n"
        "authorization: {rules: [{}]}\nlimits: {overrides: [{match: {}}]}\n"
        "admin: {tokens: [{file: /run/secrets/taskgate-ops, role: operator, name: ops}]}\n"
    )
    assert load(FOLDER / "full.yaml", {}) == load(reduced, {})


def test_the_minimal_example_has_what_is_required_and_nothing_else() -> None:
    required = {key for key, (_, needed) in KEYS.items() if needed and "[]" not in key} | {"upstreams.*.url"}
    assert _written(YAML(typ="safe").load(FOLDER / "minimal.yaml")) == {
        key for key in required if not key.startswith(("auth.issuers.", "auth.api_keys."))
    }


def test_the_full_example_is_in_the_order_of_the_effective_configuration() -> None:
    shown = effective(load(FOLDER / "full.yaml", {}))
    keys = re.compile(r"^ *(?:- )?([a-z_]+):", re.MULTILINE)
    assert keys.findall((FOLDER / "full.yaml").read_text(encoding="utf-8")) == keys.findall(shown)


def _page_rows() -> dict[str, list[str]]:
    rows = re.findall(r"^\| `([a-z_.*\[\]]+)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len({key for key, _ in rows}) == len(rows), "a key is on the page twice"
    return {key: cells.split(" | ") for key, cells in rows}


def test_the_page_has_every_key_and_no_other() -> None:
    assert set(_page_rows()) == set(KEYS)


def _default(key: str) -> str:
    """The default of a key, as the page writes it."""
    node, needed = KEYS[key]
    if needed:
        return "required"
    value = node["default"]
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _first_rows() -> dict[str, str]:
    """The keys of the page's first table, and the default that it tells of each."""
    first = PAGE.read_text(encoding="utf-8").split("\n## ")[1]
    assert first.startswith("The twelve you will set\n")
    rows = re.findall(r"^\| \[`(\S+)`\]\(#(\w+)\) \| [^|]+ \| [^|]+ \| ([^|]+) \|$", first, re.MULTILINE)
    assert [section for _, section, _ in rows] == [key.split(".")[0] for key, _, _ in rows]
    return {key: default for key, _, default in rows}


def test_the_page_begins_with_twelve_keys_and_their_defaults() -> None:
    assert len(_first_rows()) == 12
    assert _first_rows() == {key: _default(key) for key in _first_rows()}


def test_the_first_configuration_of_the_page_sets_the_twelve_keys() -> None:
    text = PAGE.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    assert set(_first_rows()) - _written(YAML(typ="safe").load(text)) == set()


@pytest.mark.parametrize("key", KEYS)
def test_the_page_says_of_a_key_what_the_schema_says(key: str) -> None:
    _, default, meaning = _page_rows()[key]
    assert (default, meaning) == (_default(key), KEYS[key][0]["description"])


@pytest.mark.parametrize("key", KEYS)
def test_the_page_has_the_type_of_a_key(key: str) -> None:
    node, _ = KEYS[key]
    kind = _page_rows()[key][0]
    choices = [each for each in node.get("anyOf", [node]) if "$ref" not in each]
    # A word may stand beside a type, as `never` beside a duration.
    words = [each["const"] for each in choices if "const" in each] if len(choices) > 2 else []
    assert all(f"`{word}`" in kind for word in words)
    [choice] = [each for each in choices if each.get("type") != "null" and each.get("const") not in words]
    assert kind.endswith(" or `null`") is (len(choices) > 1)
    if "enum" in choice or "const" in choice:
        values = choice.get("enum", [choice.get("const")])
        named = kind.removesuffix(" or `null`")
        assert re.findall("`([^`]*)`", named) == [
            each if isinstance(each, str) else json.dumps(each) for each in values
        ]
    elif choice["type"] in ("integer", "number"):
        bounds = [f"{choice['minimum']:g}"] + ([f"{choice['maximum']}"] if "maximum" in choice else [])
        assert re.findall(r"[\d.]+", kind) == bounds
    elif choice["type"] == "boolean":
        assert re.findall("`([^`]*)`", kind) == ["true", "false"]
    elif choice["type"] in ("array", "object"):
        assert kind.startswith("list of " if choice["type"] == "array" else "mapping of ")
    else:
        assert kind.startswith(("duration", "size", "rate", "address", "URL", "path", "text"))
        for word, unit in (("duration", "(ms|s"), ("size", "KiB"), ("rate", "/(s|m|h)")):
            assert kind.startswith(word) is (unit in choice.get("pattern", ""))


def test_the_links_of_the_page_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / target).is_file()
