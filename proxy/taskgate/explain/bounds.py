"""The bounds of a call that are the same for every caller: what may be open, polls, and what its server may take.

What must not live here: which rule decides (`findings`), sentences for people (`wording`).
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Final

from taskgate.config import GatewayConfig
from taskgate.config.settings import upstream_settings
from taskgate.config.units import write_duration, write_size
from taskgate.explain.places import place

_SERVER: Final = ("concurrency", "queue.size", "queue.max_wait", "timeouts.connect")
_PROGRAM: Final = ("timeouts.first_byte", "processes", "sessions")
_BREAKER: Final = ("circuit_breaker.failures", "circuit_breaker.window", "circuit_breaker.open_for")
_OF_TOOLS: Final = ("idle", "call", "ceiling")
_LOOKUPS: Final = ("threshold", "window", "penalty")


def said(config: GatewayConfig, *location: str | int) -> dict[str, Any]:
    """What a key of the file says, and where."""
    value: Any = config
    for part in location:
        value = value[part] if isinstance(part, int) or isinstance(value, Mapping) else getattr(value, part)
    return _told(config, value, *location)


def open_at_once(config: GatewayConfig) -> dict[str, Any]:
    """What a caller may have at once: sessions, streams, waits for results, and bytes of large messages and streams."""
    return {
        "sessions": said(config, "limits", "concurrency", "sessions_per_context"),
        "streams": said(config, "server", "max_streams_per_context"),
        "waits": said(config, "limits", "concurrency", "waits_per_context"),
        "large_messages": _size(said(config, "limits", "concurrency", "bytes_in_flight_per_context")),
        "kept_by_streams": _size(said(config, "limits", "concurrency", "streams_kept_per_context")),
    }


def polls(config: GatewayConfig) -> dict[str, Any]:
    """How often a task may be asked for."""
    return {
        "interval": said(config, "tasks", "poll_interval", "base"),
        "reject_above": said(config, "tasks", "early_poll", "reject_above"),
    }


def lookups(config: GatewayConfig) -> dict[str, Any]:
    """What becomes of who asks for tasks that are not theirs; nothing where everybody is one caller."""
    if config.auth.mode == "none":
        return {}
    return {key: said(config, "auth", "lookup_failures", key) for key in _LOOKUPS}


def server(config: GatewayConfig, upstream: str, tool: str, override: int | None = None) -> dict[str, Any]:
    """How many calls the server gets, how long one to that tool may take, and when the server is left alone.

    `override` is the one that says how many of them are the caller's.
    """
    here = ("upstreams", upstream)
    broken = _BREAKER if config.upstreams[upstream].circuit_breaker is not None else ("circuit_breaker",)
    keys = _SERVER if config.upstreams[upstream].command is None else (*_SERVER, *_PROGRAM)
    found = {key: said(config, *here, *key.split(".")) for key in keys}
    if config.auth.mode != "none":
        whose = () if override is None else ("overrides", override)
        found["calls_per_context"] = said(config, "limits", *whose, "concurrency", "calls_per_context")
    found.update(_timeouts(config, upstream, tool))
    return found | {key: said(config, *here, *key.split(".")) for key in broken}


def _timeouts(config: GatewayConfig, upstream: str, tool: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """What counts for a tool: nothing where there is no bound, and for null what it means."""
    settings, written = upstream_settings(config, upstream), config.upstreams[upstream].timeouts
    number = next((number for number, each in enumerate(settings.tools) if fnmatchcase(tool, each.tool)), None)
    bounds = settings if number is None else settings.tools[number]
    for key in _OF_TOOLS:
        where: tuple[str | int, ...] = ("timeouts", key)
        if number is not None and getattr(written.tools[number], key) is not None:
            where = ("timeouts", "tools", number, key)
        value = getattr(bounds, key)
        if value is not None:
            yield f"timeouts.{key}", _told(config, value, "upstreams", upstream, *where)


def _size(found: dict[str, Any]) -> dict[str, Any]:
    return found | {"value": write_size(found["value"])}


def _told(config: GatewayConfig, value: Any, *location: str | int) -> dict[str, Any]:
    where = place(config, *location)
    return {
        "value": write_duration(value) if isinstance(value, timedelta) else value,
        "from": where.path,
        "default": where.is_default,
    }
