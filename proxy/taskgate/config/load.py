"""From a file, or from the flags that replace one, to a GatewayConfig; and back to text.

What lives here: `load`, `for_upstream`, `for_command`, the effective configuration, the JSON Schema, the data
directory. What must not: the vocabulary itself (models), YAML (document). What holds: everything that is wrong is told
at once, in a ConfigurationError, and no other exception leaves; what `effective` gives loads to an equal configuration,
unless it has secrets, which it does not show.
"""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML

from taskgate.config.addresses import masked
from taskgate.config.coherence import contradictions
from taskgate.config.document import ConfigDocument, read_document, read_text
from taskgate.config.extension_models import TAGS
from taskgate.config.models import USUAL, GatewayConfig
from taskgate.config.problems import ConfigurationError, Location, Problem, dotted, unknown_key, worded

_REFERENCE = {
    "description": "${NAME}, ${NAME:-default} or ${file:/path}; $$ is a dollar sign",
    "type": "string",
    "pattern": r"\$\{[^}]+\}",
}
_HINTS: Mapping[Location, str] = {
    ("version",): "; write version: 1",
    ("auth",): "; write auth: with mode: required and issuers, or auth: {mode: none}",
    ("auth", "mode"): "; write mode: required, or mode: none",
}
_FLAGS: Mapping[Location, str] = {
    ("upstreams", "default", "url"): "--upstream",
    ("upstreams", "default", "command"): "--upstream-command",
    ("server", "listen"): "--listen",
    ("admin", "listen"): "--admin",
}


def load(path: Path, environ: Mapping[str, str]) -> GatewayConfig:
    """The configuration in the file, its `${…}` references replaced; ConfigurationError lists all that is wrong."""
    document = read_document(read_text(path), file=str(path), environ=environ)
    config, wrong = _validated(document.written)
    problems = [*document.problems, *(document.problem(loc, msg) for loc, msg in wrong if not _covered(document, loc))]
    if problems or config is None:
        raise ConfigurationError(sorted(problems, key=lambda problem: (problem.line or 0, problem.path)))
    return config


def for_upstream(url: str, listen: str | None, admin: str | None) -> GatewayConfig:
    """What `taskgate serve --upstream URL [--listen HOST:PORT] [--admin HOST:PORT]` means.

    That server at `/mcp`, loopback only, without authentication, SQLite in the data directory; a flag that is None is
    as in a file without the key. ConfigurationError names the flags.
    """
    return _for_server({"url": url}, listen, admin)


def for_command(command: str, listen: str | None, admin: str | None) -> GatewayConfig:
    """The same of `--upstream-command COMMAND`, which is split as a shell would and given to none."""
    try:
        words = shlex.split(command)
    except ValueError:
        message = "must have a quotation mark that ends each one that begins, and something behind each backslash"
        raise ConfigurationError([Problem(path="--upstream-command", message=message)]) from None
    return _for_server({"transport": "stdio", "command": words}, listen, admin)


def _for_server(server: Mapping[str, Any], listen: str | None, admin: str | None) -> GatewayConfig:
    written: dict[str, Any] = {
        "version": 1,
        "auth": {"mode": "none"},
        "upstreams": {"default": {"path": "/mcp", **server}},
    }
    for section, address in (("server", listen), ("admin", admin)):
        if address is not None:
            written[section] = {"listen": address}
    config, wrong = _validated(written)
    if config is None:
        raise ConfigurationError(Problem(path=_flagged(dotted(loc)), message=_flagged(msg)) for loc, msg in wrong)
    return config


def effective(config: GatewayConfig) -> str:
    """The whole configuration as YAML in the words of the file, every key shown, and `********` for each secret.

    Where it had secrets, it does not load again until they are put back.
    """
    stream = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # declared as None alone
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 10_000
    yaml.dump(_literal(config.model_dump(mode="json")), stream)
    return stream.getvalue()


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the file as people write it, with a description and the default of every key.

    Rules between keys, and what a pattern cannot say, are beyond it: `load` decides.
    """
    generated = GatewayConfig.model_json_schema(mode="serialization")
    written = _as_written(generated, generated["$defs"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **written, "$defs": {"reference": _REFERENCE}}


def data_directory(environ: Mapping[str, str]) -> Path:
    """Where files without a configured path live; ConfigurationError where the environment names no place at all."""
    return _data_directory(environ)[1]


def open_data_directory(environ: Mapping[str, str]) -> Path:
    """`data_directory`, made with mode 0700 where it is missing; ConfigurationError when it cannot be made or used."""
    variable, directory = _data_directory(environ)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        message = f"the data directory {directory} cannot be made: {error.strerror}"
        raise ConfigurationError([Problem(path=variable, message=message)]) from None
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        message = f"the data directory {directory} cannot be written: no permission"
        raise ConfigurationError([Problem(path=variable, message=message)])
    return directory


def _data_directory(environ: Mapping[str, str]) -> tuple[str, Path]:
    # systemd gives a list when a unit asks for several state directories; the first is the one it is for.
    if named := environ.get("TASKGATE_DATA_DIR"):
        return "TASKGATE_DATA_DIR", Path(named)
    if state := environ.get("STATE_DIRECTORY"):
        return "STATE_DIRECTORY", Path(state.split(":")[0])
    if (shared := environ.get("XDG_DATA_HOME", "")).startswith("/"):
        return "XDG_DATA_HOME", Path(shared) / "taskgate"
    if home := environ.get("HOME"):
        return "HOME", Path(home) / ".local" / "share" / "taskgate"
    message = "is not set, and neither is HOME, so there is no data directory"
    raise ConfigurationError([Problem(path="TASKGATE_DATA_DIR", message=message)])


def _flagged(text: str) -> str:
    """The text with flags in place of the keys that they stand for."""
    for location, flag in _FLAGS.items():
        text = text.replace(dotted(location), flag)
    return text


def _literal(written: Any) -> Any:
    """Dollar signs doubled, so that none of them begins a reference; what a query of a URL says is hidden."""
    if isinstance(written, str):
        return masked(written).replace("$", "$$")
    if isinstance(written, dict):
        return {key: _literal(value) for key, value in written.items()}
    if isinstance(written, list):
        return [_literal(value) for value in written]
    return written


def _validated(written: Mapping[str, object]) -> tuple[GatewayConfig | None, list[tuple[Location, str]]]:
    try:
        return GatewayConfig.model_validate(written), []
    except ValidationError as invalid:
        told = [_told(error) for error in invalid.errors() if error["type"] != "contradiction"]
    # The model's own contradictions are left out, because it no longer knows what was written and what is default.
    # Fields that are wrong keep the model from looking at keys together; a file's author wants to hear both, but not
    # what a value contradicts that cannot stay as it is.
    wrong = {location for location, _ in told}
    return None, [*told, *(each for each in contradictions(written, usual=USUAL) if each[0] not in wrong)]


def _told(error: ErrorDetails) -> tuple[Location, str]:
    location = tuple(part for part in error["loc"] if part not in TAGS)
    if error["type"] == "extra_forbidden":
        return location, unknown_key(str(location[-1]), _keys_at(location[:-1]))
    if location[-1:] == ("[key]",):
        location = location[:-1]
    hint = _HINTS.get(location, "") if error["type"] == "missing" else ""
    return location, f"{worded(error)}{hint}"


def _keys_at(location: Location) -> Sequence[str]:
    """The keys that the section at a location knows."""
    node: Any = GatewayConfig
    for part in location:
        if not _is_section(node):
            node = _within(node)
        elif part in node.model_fields:
            node = _given(node.model_fields[part].annotation)
        else:
            node = node.OF_EXTRA
    return list(node.model_fields)


def _given(annotation: Any) -> Any:
    """A section that may be null as the section that it is otherwise; what is none stays."""
    return _within(annotation) if NoneType in get_args(annotation) else annotation


def _within(annotation: Any) -> Any:
    return next(filter(_is_section, get_args(annotation)), annotation)


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _covered(document: ConfigDocument, location: Location) -> bool:
    """Whether the problem follows from one that was told already."""
    return any(location[:end] in document.unusable for end in range(len(location) + 1))


def _as_written(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A generated schema in one piece, without made-up titles, with references allowed for every scalar."""
    if "$ref" in node:
        node = {**definitions[node["$ref"].rpartition("/")[2]], **node}
    node = {key: value for key, value in node.items() if key not in ("$ref", "$defs", "title")}
    if "description" in node:
        node["description"] = " ".join(node["description"].split())
    if node.get("type") == "array":
        return node | {"items": _as_written(node["items"], definitions)}
    if node.get("type") == "object":
        return node | _members(node, definitions)
    about = {str(key): node.pop(key) for key in ("description", "default") if key in node}
    choices = [_choice(each, definitions) for each in node.get("anyOf", node.get("oneOf", [node]))]
    return about | {"anyOf": [*choices, {"$ref": "#/$defs/reference"}]}


def _choice(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    return _as_written(node, definitions) if "$ref" in node or node.get("type") == "array" else node


def _members(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """What a mapping may hold, and nothing else but for what its author names freely."""
    found: dict[str, Any] = {"additionalProperties": node.get("additionalProperties", False)}
    if isinstance(found["additionalProperties"], dict):
        found["additionalProperties"] = _as_written(found["additionalProperties"], definitions)
    for group in node.keys() & {"properties", "patternProperties"}:
        found[group] = {name: _as_written(child, definitions) for name, child in node[group].items()}
    return found
