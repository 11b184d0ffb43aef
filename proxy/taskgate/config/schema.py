"""The JSON Schema of the configuration file: `json_schema`.

`taskgate schema` prints it, and config/schema.json is a copy of it.
"""

from __future__ import annotations

from typing import Any

from taskgate.config.model import GatewayConfig

_REFERENCE = {
    "description": "${NAME}, ${NAME:-default} or ${file:/path}; $$ is a dollar sign",
    "type": "string",
    "pattern": r"\$\{[^}]+\}",
}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12), with a description and the default of every key.

    It lacks the rules between keys, and what a pattern cannot express: `load` checks those.
    """
    generated = GatewayConfig.model_json_schema(mode="serialization")
    schema = _inlined(generated, generated["$defs"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "$defs": {"reference": _REFERENCE}}


def _inlined(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a generated schema without `$ref` and titles, with a reference as a choice of every
    scalar.
    """
    if "$ref" in node:
        node = {**definitions[node["$ref"].rpartition("/")[2]], **node}
    node = {key: value for key, value in node.items() if key not in ("$ref", "$defs", "title")}
    if "description" in node:
        node["description"] = " ".join(node["description"].split())
    if node.get("type") == "array":
        return node | {"items": _inlined(node["items"], definitions)}
    if node.get("type") == "object":
        return node | _members(node, definitions)
    about = {str(key): node.pop(key) for key in ("description", "default") if key in node}
    choices = [
        _inlined(each, definitions) if "$ref" in each or each.get("type") == "array" else each
        for each in node.get("anyOf", node.get("oneOf", [node]))
    ]
    return about | {"anyOf": [*choices, {"$ref": "#/$defs/reference"}]}


def _members(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the members of an object; others are refused, except where names are free."""
    found: dict[str, Any] = {"additionalProperties": node.get("additionalProperties", False)}
    if isinstance(found["additionalProperties"], dict):
        found["additionalProperties"] = _inlined(found["additionalProperties"], definitions)
    for group in node.keys() & {"properties", "patternProperties"}:
        found[group] = {name: _inlined(child, definitions) for name, child in node[group].items()}
    return found
