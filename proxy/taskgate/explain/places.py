"""Where in the file a value stands, or that it stands nowhere and is the default.

What must not live here: what the value means.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel

from taskgate.config import GatewayConfig
from taskgate.config.problems import Location, dotted


class ConfigPath(NamedTuple):
    """A dotted path, and whether the file says nothing there."""

    path: str
    is_default: bool


def place(config: GatewayConfig, *location: str | int) -> ConfigPath:
    """The place of a key of the configuration."""
    return ConfigPath(dotted(location), _is_default(config, location))


def _is_default(node: object, location: Location) -> bool:
    for part in location:
        if isinstance(node, BaseModel) and isinstance(part, str):
            if part not in node.model_fields_set:
                return True
            node = getattr(node, part)
        elif isinstance(node, Mapping | Sequence):
            node = node[part]  # type: ignore[index]  # a mapping has names, a sequence numbers
    return False
