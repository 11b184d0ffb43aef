"""What an operator may set: the vocabulary of the file, reading it, and telling what is wrong with it."""

from taskgate.config.access import access_policy, issuer_settings
from taskgate.config.addresses import BindAddress
from taskgate.config.load import (
    data_directory,
    effective,
    for_command,
    for_upstream,
    load,
    open_data_directory,
    schema,
)
from taskgate.config.models import GatewayConfig
from taskgate.config.problems import ConfigurationError, Problem

__all__ = [
    "BindAddress",
    "ConfigurationError",
    "GatewayConfig",
    "Problem",
    "access_policy",
    "data_directory",
    "effective",
    "for_command",
    "for_upstream",
    "issuer_settings",
    "load",
    "open_data_directory",
    "schema",
]
