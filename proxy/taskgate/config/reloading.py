"""What changes when another configuration takes the place of one that is being served.

What lives here: telling which keys need a restart, keeping those as they were, and the fingerprint of a configuration.
What must not: reading files, applying anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import scrypt
from typing import Any, Final

from taskgate.config.coherence import contradictions
from taskgate.config.models import GatewayConfig
from taskgate.config.problems import ConfigurationError, Location, Problem, dotted

KEPT: Final = ("server", "admin", "store", "tracing")
"""The sections of which hardly anything takes effect before a restart."""
_LOOKED_AT: Final = (*KEPT, "auth", "tasks")
_STREAMS: Final = "max_streams_per_context"
_MODE: Final = ("auth", "mode")
_TTL: Final = ("tasks", "ttl")
_BYTES: Final = 6
_EFFORT = 2**14
"""What it takes to make a fingerprint, in KiB of memory that are gone through twice."""


def restart_needed(old: GatewayConfig, new: GatewayConfig) -> tuple[str, ...]:
    """The dotted paths of the keys whose change takes effect with a restart alone, sections in the order of `KEPT`."""
    before, after = old.model_dump(mode="json"), new.model_dump(mode="json")
    places = (each for name in _LOOKED_AT for each in _changed(before[name], after[name], (name,)))
    has_mode = old.auth.mode != new.auth.mode
    return tuple(dotted(where) for where in places if _is_kept(where) or (has_mode and where[:2] == _TTL))


def with_kept(old: GatewayConfig, new: GatewayConfig) -> GatewayConfig:
    """The new configuration, with what needs a restart as it is in the old one.

    Where that is `auth.mode`, it is all of `auth`, and `tasks.ttl`, whose bounds depend on it. Raises
    ConfigurationError where the two do not go together, such as rules that ask for claims and `auth.mode: none`.
    """
    kept: dict[str, Any] = {name: getattr(old, name) for name in KEPT}
    kept["server"] = old.server.model_copy(update={_STREAMS: new.server.max_streams_per_context})
    if old.auth.mode != new.auth.mode:
        kept |= {"auth": old.auth, "tasks": new.tasks.model_copy(update={"ttl": old.tasks.ttl})}
    mixed = new.model_copy(update=kept)
    wrong = contradictions(mixed.model_dump(mode="json"), usual={})
    if wrong:
        hint = " (without a restart)"
        raise ConfigurationError(Problem(path=dotted(where), message=f"{message}{hint}") for where, message in wrong)
    return mixed


def fingerprint(config: GatewayConfig) -> int:
    """48 bits that are the same for configurations of the same effect, secrets included, and hardly for others.

    Takes tens of milliseconds, so that secrets are not found by trying them out against what metrics show.
    """
    said = json.dumps(config.model_dump(mode="python"), default=repr, sort_keys=True)
    return int.from_bytes(scrypt(said.encode(), salt=b"taskgate configuration", n=_EFFORT, r=8, p=1, dklen=_BYTES))


def _is_kept(where: Location) -> bool:
    return where == _MODE or (where[0] in KEPT and where != ("server", _STREAMS))


def _changed(before: object, after: object, where: Location) -> Iterator[Location]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        # Names that their author chose come and go.
        for key in {**before, **after}:
            yield from _changed(before.get(key), after.get(key), (*where, key))
    elif before != after:
        yield where
