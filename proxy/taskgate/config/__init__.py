"""The configuration: its keys, how a file is read, and what is wrong with it.

`model` has `GatewayConfig` and its JSON Schema; `sections` its sections, each with its rules and
settings. `load` reads a file by `document` (YAML and references such as `${NAME}`). `fields` and
`addresses` are the types of values; `problems` serves the rules. `file_watch` notices changed files.
The users are the command line, `explain` and `wiring`; lower folders get settings of their own.
"""

from taskgate.config.addresses import BindAddress
from taskgate.config.load import (
    effective,
    expect_data_directory,
    for_command,
    for_upstream,
    load,
    needs_data_directory,
    open_data_directory,
)
from taskgate.config.model import GatewayConfig, json_schema
from taskgate.config.problems import ConfigurationError, Problem

__all__ = [
    "BindAddress",
    "ConfigurationError",
    "GatewayConfig",
    "Problem",
    "effective",
    "expect_data_directory",
    "for_command",
    "for_upstream",
    "json_schema",
    "load",
    "needs_data_directory",
    "open_data_directory",
]
