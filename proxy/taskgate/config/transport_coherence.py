"""What the keys of a server say together with how it is spoken to.

What lives here: which keys belong to which `transport`, the rule between the keys of `restart`, and what is not asked
of programs where nothing is written. What must not: the models. What holds: as in coherence, malformed parts contradict
nothing; a key that a transport has no use for may be written as it is by default, which `effective` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from taskgate.config.problems import Location
from taskgate.config.program_models import PoolSection, RestartSection
from taskgate.config.protection_models import RetriesSection
from taskgate.config.units import DurationIn
from taskgate.config.written import Contradiction, read, section, told

STDIO: Final = "stdio"
_OVER_HTTP: Final = ("http", "sse")
_NEWEST: Final = "2026-07-28"

_RESTART: Final[Mapping[str, Any]] = RestartSection().model_dump(mode="json")
OF_PROGRAMS: Final[Mapping[tuple[str, ...], Any]] = {
    ("env",): {},
    ("cwd",): None,
    ("processes",): 8,
    **{("restart", key): value for key, value in _RESTART.items()},
    **{("pool", key): value for key, value in PoolSection().model_dump(mode="json").items()},
    ("sessions",): "isolated",
}
_OF_CONNECTIONS: Final[Mapping[tuple[str, ...], tuple[Any, str]]] = {
    ("url",): (None, "which has a command"),
    ("credentials", "mode"): ("none", "where credentials go into env"),
    ("identity_headers", "context"): (None, "which has no headers"),
    ("identity_headers", "subject"): (None, "which has no headers"),
    **{
        ("tls", key): (usual, "which has no connection")
        for key, usual in (
            *((name, None) for name in ("ca_file", "cert_file", "key_file", "server_name")),
            ("insecure_skip_verify", False),
        )
    },
    **{
        ("retries", key): (usual, "where nothing is tried again")
        for key, usual in RetriesSection().model_dump(mode="json").items()
    },
    ("health",): (None, "where it would take a process for that alone"),
}
_UNASKED: Final = {"health": None, "circuit_breaker": None}


def without_checks(written: object) -> object:
    """What is written, with `health` and `circuit_breaker` null for programs, unless they are given."""
    upstreams = section(written, "upstreams")
    if not isinstance(written, Mapping) or not any(_is_program(each) for each in upstreams.values()):
        return written
    filled = {name: {**_UNASKED, **section(each)} if _is_program(each) else each for name, each in upstreams.items()}
    return {**written, "upstreams": filled}


def transport_contradictions(written: object) -> Iterator[Contradiction]:
    """Every contradiction among these keys."""
    for name, upstream in section(written, "upstreams").items():
        if not isinstance(upstream, Mapping):
            continue
        here = ("upstreams", name)
        kind = upstream.get("transport", "http")
        if kind in _OVER_HTTP:
            yield from _over_http(upstream, here, str(kind))
        elif kind == STDIO:
            yield from _of_program(upstream, here)
        yield from _of_restart(upstream, name)


def _over_http(upstream: Mapping[str, object], here: Location, kind: str) -> Iterator[Contradiction]:
    has_command = upstream.get("command") is not None
    if has_command:
        yield (*here, "command"), f"must be null with transport {kind}: write transport: stdio for a program"
    elif upstream.get("url") is None:
        yield (*here, "url"), f"is required with transport {kind}"
    for keys, usual in OF_PROGRAMS.items():
        if _is_set(upstream, keys, usual) and not has_command:
            yield (*here, *keys), f"must not be set with transport {kind}, which starts no program"
    if kind == "sse" and upstream.get("protocol_version") == _NEWEST:
        yield (*here, "protocol_version"), f"must not be {_NEWEST} with transport sse, which that revision has not"


def _of_program(upstream: Mapping[str, object], here: Location) -> Iterator[Contradiction]:
    if upstream.get("command") is None:
        yield (*here, "command"), "is required with transport stdio"
    for keys, (usual, why) in _OF_CONNECTIONS.items():
        if _is_set(upstream, keys, usual):
            yield (*here, *keys), f"must not be set with transport stdio, {why}"


def _of_restart(upstream: object, name: str) -> Iterator[Contradiction]:
    trees = {"upstreams": {name: upstream}}, {"upstreams": {name: {"restart": _RESTART}}}
    pauses = ("upstreams", name, "restart", "backoff"), ("upstreams", name, "restart", "max_backoff")
    least, most = (read(trees, keys, DurationIn().read) for keys in pauses)
    if least and most and least > most:
        yield told(*trees, *pauses, ("must be at most", "must be at least"))


def _is_set(upstream: Mapping[str, object], keys: tuple[str, ...], usual: object) -> bool:
    """Whether it is written otherwise than by default."""
    *above, last = keys
    return section(upstream, *above).get(last, usual) != usual


def _is_program(upstream: object) -> bool:
    return section(upstream).get("transport") == STDIO
