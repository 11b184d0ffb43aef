"""Differences between the served configuration and a reloaded one, and the fingerprint of one.

At a reload `wiring` asks `restart_needed` what must wait for a restart, and serves the
configuration that `without_restart` returns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import scrypt
from typing import Any, Final

from taskgate.config.model import GatewayConfig, conflicts
from taskgate.config.problems import ConfigurationError, Location, Problem, dotted

RESTART_SECTIONS: Final = ("server", "admin", "store", "tracing")
"""Sections that change with a restart, all but `server.max_streams_per_context`."""
_COMPARED: Final = (*RESTART_SECTIONS, "auth", "tasks")
_STREAMS: Final = "max_streams_per_context"
_MODE: Final = ("auth", "mode")
_TTL: Final = ("tasks", "ttl")
_BYTES: Final = 6
SCRYPT_COST = 2**14
"""The cost of a fingerprint: KiB of memory, read and written twice. Tests lower it."""


def restart_needed(old: GatewayConfig, new: GatewayConfig) -> tuple[str, ...]:
    """Return the dotted paths of changed keys that need a restart, () if there are none.

    They are in the order of RESTART_SECTIONS, then `auth` and `tasks`.
    """
    before, after = old.model_dump(mode="json"), new.model_dump(mode="json")
    changed = (each for name in _COMPARED for each in _changed(before[name], after[name], (name,)))
    has_other_mode = old.auth.mode != new.auth.mode
    return tuple(dotted(where) for where in changed if _needs_restart(where) or (has_other_mode and where[:2] == _TTL))


def without_restart(old: GatewayConfig, new: GatewayConfig) -> GatewayConfig:
    """Return the new configuration with the old values of keys that need a restart.

    If `auth.mode` changes, these are all of `auth`, and `tasks.ttl`, whose bounds depend on it.
    Raises ConfigurationError where old and new values conflict, such as rules that ask for claims
    and `auth.mode: none`.
    """
    kept: dict[str, Any] = {name: getattr(old, name) for name in RESTART_SECTIONS}
    kept["server"] = old.server.model_copy(update={_STREAMS: new.server.max_streams_per_context})
    if old.auth.mode != new.auth.mode:
        kept |= {"auth": old.auth, "tasks": new.tasks.model_copy(update={"ttl": old.tasks.ttl})}
    mixed = new.model_copy(update=kept)
    found = conflicts(mixed.model_dump(mode="json"), defaults={})
    if found:
        hint = " (without a restart)"
        raise ConfigurationError(Problem(path=dotted(where), message=f"{message}{hint}") for where, message in found)
    return mixed


def fingerprint(config: GatewayConfig) -> int:
    """Return 48 bits that are equal for configurations of equal effect, secrets included.

    This takes tens of milliseconds, so that secrets cannot be guessed by comparing the fingerprint
    that metrics show.
    """
    dumped = json.dumps(config.model_dump(mode="python"), default=repr, sort_keys=True)
    digest = scrypt(dumped.encode(), salt=b"taskgate configuration", n=SCRYPT_COST, r=8, p=1, dklen=_BYTES)
    return int.from_bytes(digest)


def _needs_restart(where: Location) -> bool:
    return where == _MODE or (where[0] in RESTART_SECTIONS and where != ("server", _STREAMS))


def _changed(before: object, after: object, where: Location) -> Iterator[Location]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        # Keys that their author names, such as issuers, may be in one of the two alone.
        for key in {**before, **after}:
            yield from _changed(before.get(key), after.get(key), (*where, key))
    elif before != after:
        yield where
