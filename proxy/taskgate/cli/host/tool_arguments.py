"""The arguments of a tool from a command line: `read_arguments` and `read_typed`.

`--arg NAME=VALUE` is text. The input schema of the tool says what else it may be. A value that fits
several types is the narrowest: null, true or false, a number, an array or object, then text. Where
a value may be text or another type, JSON quotes around it make it text.
"""

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

MAX_FILE: Final = 4 * 2**20
"""Bytes of a file with arguments."""
_ALL: Final = frozenset({"null", "boolean", "integer", "number", "array", "object", "string"})
_MAX_DEPTH: Final = 8


class ArgumentInvalid(ValueError):
    """An argument cannot be used; the text is for the operator."""


def read_arguments(text: str) -> dict[str, Any]:
    """Read `--args-json`: a JSON object, or `@FILE` with one. Raises ArgumentInvalid."""
    if text.startswith("@"):
        file = Path(text[1:])
        try:
            with file.open("rb") as opened:
                content = opened.read(MAX_FILE + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not a path"
            raise ArgumentInvalid(f"--args-json: {file} cannot be read: {reason}") from None
        if len(content) > MAX_FILE:
            raise ArgumentInvalid(f"--args-json: {file} is longer than 4 MiB")
        text = content.decode(errors="replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ArgumentInvalid("--args-json is not JSON") from None
    if not isinstance(found, dict):
        raise ArgumentInvalid("--args-json must be a JSON object")
    return found


def read_typed(pairs: Iterable[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Read each `NAME=VALUE` by the input schema of a tool. Raises ArgumentInvalid."""
    found: dict[str, Any] = {}
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise ArgumentInvalid("--arg must be NAME=VALUE")
        if name in found:
            raise ArgumentInvalid(f"--arg {name} is given twice")
        if name not in known and schema.get("additionalProperties") is False:
            close = get_close_matches(name, [*map(str, known)], n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ArgumentInvalid(f"--arg {name}: the tool has no such argument{hint}")
        found[name] = _read_value(name, text, _types(known.get(name), schema, 0))
    return found


def _types(part: Any, root: Mapping[str, Any], depth: int) -> frozenset[str]:
    """The types that a part of a schema allows; all of them where it does not say."""
    if not isinstance(part, dict) or depth > _MAX_DEPTH:
        return _ALL
    reference = part.get("$ref")
    if isinstance(reference, str):
        return _types(_resolve(reference, root), root, depth + 1)
    if isinstance(kind := part.get("type"), str):
        return frozenset({kind}) & _ALL or _ALL
    if isinstance(kind, list):
        return frozenset(each for each in kind if isinstance(each, str)) & _ALL or _ALL
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := part.get(key), list) and choices:
            return frozenset().union(*(_types(each, root, depth + 1) for each in choices[:64]))
    if isinstance(values := part.get("enum"), list):
        return frozenset(_type_of(each) for each in values) or _ALL
    return _ALL


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for key in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _read_value(name: str, text: str, types: frozenset[str]) -> Any:
    if types == {"string"}:
        return text
    try:
        value = json.loads(text)
        fits = _type_of(value) in types or (_type_of(value) == "integer" and "number" in types)
    except (ValueError, RecursionError):
        value, fits = None, False
    if fits:
        return value
    if "integer" in types and isinstance(value, float) and value.is_integer():
        return int(value)
    if "string" in types:
        return text
    raise ArgumentInvalid(f"--arg {name} must be of type {' or '.join(sorted(types))}")


def _type_of(value: Any) -> str:
    for kind, name in (
        (bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"), (dict, "object"),
    ):  # fmt: skip
        if isinstance(value, kind):
            return name
    return "null"
