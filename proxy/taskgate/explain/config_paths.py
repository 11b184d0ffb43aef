"""Sources of values: the dotted path of a key, and whether the file leaves it to its default.

A source is a mapping with `from` and `default`, which is part of the JSON of an explanation.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from taskgate.config import GatewayConfig
from taskgate.config.problems import Location, dotted
from taskgate.config.units import write_duration


def source(config: GatewayConfig, *location: str | int) -> dict[str, Any]:
    """Return the source of the key at a location."""
    return {"from": dotted(location), "default": _is_default(config, location)}


def with_source(config: GatewayConfig, value: Any, *location: str | int) -> dict[str, Any]:
    """Return a value, a duration as the file writes it, with the source of the key at a location."""
    return {"value": write_duration(value) if isinstance(value, timedelta) else value, **source(config, *location)}


def value_at(config: GatewayConfig, *location: str | int) -> dict[str, Any]:
    """Return the value of the key at a location, with its source."""
    value: Any = config
    for part in location:
        value = value[part] if isinstance(part, int) or isinstance(value, Mapping) else getattr(value, part)
    return with_source(config, value, *location)


def _is_default(node: object, location: Location) -> bool:
    for part in location:
        if isinstance(node, BaseModel) and isinstance(part, str):
            if part not in node.model_fields_set:
                return True
            node = getattr(node, part)
        elif isinstance(node, Mapping | Sequence):
            node = node[part]  # type: ignore[index]  # a mapping has names, a sequence numbers
    return False
