"""Loading of a configuration from a file or from flags, its text, and the data directory.

`load`, `for_upstream` and `for_command` return a valid `GatewayConfig` or raise ConfigurationError,
which has every problem. `effective` writes a configuration as YAML. That text loads to an equal
configuration, unless something in it is masked.
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
from taskgate.config.document import ConfigDocument, read_document, read_text
from taskgate.config.fields import MASK
from taskgate.config.model import CONFLICT, DEFAULTS, ConfigOrigin, GatewayConfig, conflicts
from taskgate.config.problems import (
    ConfigurationError,
    Location,
    Problem,
    dotted,
    pydantic_message,
    unknown_key,
)
from taskgate.config.sections.egress import ENVIRONMENT
from taskgate.config.sections.extensions import TAGS
from taskgate.egress import from_environment
from taskgate.system.secret_files import folder_fault

_HINTS: Mapping[Location, str] = {
    ("version",): "; write version: 1",
    ("auth",): "; write auth: with mode: required and issuers or api_keys, or auth: {mode: none}",
    ("auth", "mode"): "; write mode: required, or mode: none",
}
_FLAGS: Mapping[Location, str] = {
    ("upstreams", "default", "url"): "--upstream",
    ("upstreams", "default", "command"): "--upstream-command",
    ("server", "listen"): "--listen",
    ("admin", "listen"): "--admin",
}


# --- from a file or from flags --------------------------------------------------------------------------------------


def load(path: Path, environ: Mapping[str, str]) -> GatewayConfig:
    """Load the file, its references replaced. Raises ConfigurationError with every problem.

    Relative paths in the file are relative to its folder. The configuration has them absolute.
    """
    document = read_document(read_text(path), file=str(path), environ=environ)
    origin = ConfigOrigin(folder=path.absolute().parent, references=document.references)
    config, wrong = _validate(document.raw, origin)
    problems = [*document.problems, *(document.problem(loc, msg) for loc, msg in wrong if not _follows(document, loc))]
    if problems or config is None:
        in_order = sorted(problems, key=lambda problem: (problem.line or 0, problem.path))
        raise ConfigurationError(in_order, document.references.files)
    return _with_proxies_of(config, environ)


def _with_proxies_of(config: GatewayConfig, environ: Mapping[str, str]) -> GatewayConfig:
    """Return the configuration with the proxies of the environment, if it uses them.

    Raises ConfigurationError where a variable has no URL of a proxy.
    """
    if config.egress.proxy != ENVIRONMENT:
        return config
    try:
        return config.with_environment(from_environment(environ))
    except ValueError as error:
        variable, _, message = str(error).partition(" ")
        raise ConfigurationError([Problem(path=variable, message=f"{message}; or set egress.proxy")]) from None


def for_upstream(url: str, listen: str | None, admin: str | None, environ: Mapping[str, str]) -> GatewayConfig:
    """Return the configuration of `taskgate serve --upstream URL`.

    The server is at `/mcp`, on loopback addresses, without authentication, with SQLite in the data
    directory. `listen` and `admin` are the flags of these names; None means the default of the key.
    ConfigurationError names the flags.
    """
    return _for_server({"url": url}, listen, admin, environ)


def for_command(command: str, listen: str | None, admin: str | None, environ: Mapping[str, str]) -> GatewayConfig:
    """Return the same for `--upstream-command COMMAND`, split by the rules of a shell."""
    try:
        words = shlex.split(command)
    except ValueError:
        message = "must have a quotation mark that ends each one that begins, and something behind each backslash"
        raise ConfigurationError([Problem(path="--upstream-command", message=message)]) from None
    return _for_server({"transport": "stdio", "command": words}, listen, admin, environ)


def _for_server(
    server: Mapping[str, Any], listen: str | None, admin: str | None, environ: Mapping[str, str]
) -> GatewayConfig:
    raw: dict[str, Any] = {
        "version": 1,
        "auth": {"mode": "none"},
        "upstreams": {"default": {"path": "/mcp", **server}},
    }
    for section, address in (("server", listen), ("admin", admin)):
        if address is not None:
            raw[section] = {"listen": address}
    config, wrong = _validate(raw)
    if config is None:
        raise ConfigurationError(Problem(path=_with_flags(dotted(loc)), message=_with_flags(msg)) for loc, msg in wrong)
    return _with_proxies_of(config, environ)


def _with_flags(text: str) -> str:
    """Replace keys in a text by the flags that set them."""
    for location, flag in _FLAGS.items():
        text = text.replace(dotted(location), flag)
    return text


def _follows(document: ConfigDocument, location: Location) -> bool:
    """Whether a problem follows from one of the YAML that is reported already."""
    return any(location[:end] in document.unusable for end in range(len(location) + 1))


# --- validation -----------------------------------------------------------------------------------------------------


def _validate(
    raw: Mapping[str, object], origin: ConfigOrigin | None = None
) -> tuple[GatewayConfig | None, list[tuple[Location, str]]]:
    """Return the configuration and no problems, or None and every problem with its location.

    Relative paths are joined to the folder of `origin`.
    """
    try:
        return GatewayConfig.model_validate(raw, context=origin), []
    except ValidationError as invalid:
        found = [_problem(error) for error in invalid.errors() if error["type"] != CONFLICT]
    # The model checks conflicts only when every field is valid, and has lost which keys the file has.
    # So they are searched again here, except at keys whose value is wrong by itself.
    wrong = {location for location, _ in found}
    return None, [*found, *(each for each in conflicts(raw, DEFAULTS) if each[0] not in wrong)]


def _problem(error: ErrorDetails) -> tuple[Location, str]:
    location = tuple(part for part in error["loc"] if part not in TAGS)
    if error["type"] == "extra_forbidden":
        return location, unknown_key(str(location[-1]), _keys_at(location[:-1]))
    if location[-1:] == ("[key]",):
        location = location[:-1]
    hint = _HINTS.get(location, "") if error["type"] == "missing" else ""
    return location, f"{pydantic_message(error)}{hint}"


def _keys_at(location: Location) -> Sequence[str]:
    """Return the keys of the section at a location, by the types of the models."""
    node: Any = GatewayConfig
    for part in location:
        if not _is_section(node):
            node = _section_within(node)
        elif part in node.model_fields:
            annotation = node.model_fields[part].annotation
            node = _section_within(annotation) if NoneType in get_args(annotation) else annotation
        else:
            # A section with free names as keys has the model of their values in OF_EXTRA.
            node = node.OF_EXTRA
    return list(node.model_fields)


def _section_within(annotation: Any) -> Any:
    return next(filter(_is_section, get_args(annotation)), annotation)


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


# --- back to text ---------------------------------------------------------------------------------------------------


def effective(config: GatewayConfig) -> str:
    """Write the whole configuration as YAML, every key shown, and `********` for what may be secret.

    That is each secret, the queries of URLs, and what came from references, in any key. The text
    loads only after it is filled in.
    """
    stream = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # declared as None alone
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 10_000
    yaml.dump(_literal(config.model_dump(mode="json"), config.references.shown, ()), stream)
    return stream.getvalue()


def _literal(value: Any, shown: Mapping[Location, str], location: Location) -> Any:
    """Double dollar signs, so that none begins a reference, and mask what `effective` masks."""
    if isinstance(value, dict):
        return {key: _literal(each, shown, (*location, key)) for key, each in value.items()}
    if isinstance(value, list):
        return [_literal(each, shown, (*location, index)) for index, each in enumerate(value)]
    if value != MASK:
        value = shown.get(location, value)
    return masked(value).replace("$", "$$") if isinstance(value, str) else value


# --- the data directory ---------------------------------------------------------------------------------------------


def open_data_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory of files without a configured path, created with mode 0700 if missing.

    Raises ConfigurationError where the environment names none, or when it cannot be created or
    used.
    """
    variable, directory = _data_directory(environ)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        message = f"the data directory {directory} cannot be made: {error.strerror}"
        raise ConfigurationError([Problem(path=variable, message=message)]) from None
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        message = f"the data directory {directory} cannot be written: no permission"
        raise ConfigurationError([Problem(path=variable, message=message)])
    _expect_own(variable, directory)
    return directory


def _expect_own(variable: str, directory: Path) -> None:
    """Raise ConfigurationError if other users could replace the keys in the data directory."""
    if (fault := folder_fault(directory)) is not None:
        raise ConfigurationError([Problem(path=variable, message=f"the data directory {directory} {fault}")])


def needs_data_directory(config: GatewayConfig) -> bool:
    """Whether something that must outlive the process has no path of its own."""
    makes_key = config.auth.mode == "required" and config.auth.context.key_file is None
    if config.store.backend == "sqlite" and (config.store.sqlite.path is None or makes_key):
        return True
    audit = config.audit
    has_file = any(sink.type == "file" and sink.path is None for sink in audit.sinks)
    return audit.enabled and (has_file or audit.hmac_key_file is None)


def expect_data_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory that `open_data_directory` would return, and create nothing.

    Raises ConfigurationError where that would.
    """
    variable, directory = _data_directory(environ)
    nearest = next(each for each in (directory.absolute(), *directory.absolute().parents) if each.exists())
    if not nearest.is_dir():
        message = f"the data directory {directory} cannot be made: {nearest} is not a folder"
    elif os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        if nearest == directory.absolute():
            _expect_own(variable, directory)
        return directory
    elif nearest == directory.absolute():
        message = f"the data directory {directory} cannot be written: no permission"
    else:
        message = f"the data directory {directory} cannot be made: Permission denied"
    raise ConfigurationError([Problem(path=variable, message=message)])


def _data_directory(environ: Mapping[str, str]) -> tuple[str, Path]:
    # systemd sets a list when a unit has several state directories; the first is the one of the unit.
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
