"""What an operator may set: the vocabulary of the file, reading it, and telling what is wrong with it."""

from taskgate.config.addresses import Listen
from taskgate.config.load import data_directory, effective, for_upstream, load, open_data_directory, schema
from taskgate.config.models import GatewayConfig
from taskgate.config.problems import ConfigurationError, Problem

__all__ = [
    "ConfigurationError",
    "GatewayConfig",
    "Listen",
    "Problem",
    "data_directory",
    "effective",
    "for_upstream",
    "load",
    "open_data_directory",
    "schema",
]
