"""For how long tasks may be kept: that depends on whether the gateway can tell its callers apart.

What lives here: what `tasks.ttl.max` is where no value is given, and what no time to live may exceed. What must not:
what a task's time to live is in the end (tasks.policy).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

from taskgate.config.units import DurationIn, write_duration
from taskgate.config.written import Contradiction, read, section, told

LONGEST: Final = timedelta(days=7)
"""What no time to live exceeds."""
# Without authentication every host is the same anonymous one, so nothing may stay readable for long.
_LONGEST_IN: Final = {"required": LONGEST, "none": timedelta(hours=1)}
_USUAL_IN: Final = {"required": timedelta(hours=24), "none": timedelta(hours=1)}
_KEYS: Final = ("min", "default", "max")


def usual_longest(mode: str) -> timedelta:
    """What `tasks.ttl.max` is unless given, by `auth.mode`."""
    return _USUAL_IN[mode]


def ceiling(written: object) -> timedelta:
    """What no time to live of that file exceeds."""
    mode = mode_of(written)
    return _LONGEST_IN[mode] if mode else LONGEST


def mode_of(written: object) -> str | None:
    """`auth.mode`, None where it is not there or malformed."""
    mode = section(written, "auth").get("mode")
    return mode if isinstance(mode, str) and mode in _USUAL_IN else None


def completed(written: object) -> object:
    """What is written, with `tasks.ttl.max` filled in where it is null or not there. What is malformed stays so."""
    mode = mode_of(written)
    parts = _maximum_holders(written)
    if mode is None or parts is None:
        return written
    whole, tasks, ttl = parts
    return {**whole, "tasks": {**tasks, "ttl": {**ttl, "max": write_duration(usual_longest(mode))}}}


def retention_contradictions(written: object, usual: object) -> Iterator[Contradiction]:
    """Times to live that are too long for the mode, or not in order."""
    mode, longest = mode_of(written), ceiling(written)
    for key, length in _lengths(written).items():
        if length and length > longest:
            yield ("tasks", "ttl", key), f"must be at most {write_duration(longest)} with auth.mode {mode}"
    given = {key: value for key, value in section(written, "tasks", "ttl").items() if (key, value) != ("max", None)}
    default = write_duration(usual_longest(mode)) if mode else None
    trees = {"tasks": {"ttl": given}}, {"tasks": {"ttl": {**section(usual, "tasks", "ttl"), "max": default}}}
    yield from _disordered(*trees, longest)


def _disordered(written: object, usual: object, longest: timedelta) -> Iterator[Contradiction]:
    reader = DurationIn(most=longest).read
    lengths = {key: read((written, usual), ("tasks", "ttl", key), reader) for key in _KEYS}
    for lower, upper in (("min", "max"), ("min", "default"), ("default", "max")):
        least, most = lengths[lower], lengths[upper]
        if least and most and least > most:
            where = ("tasks", "ttl", lower), ("tasks", "ttl", upper)
            yield told(written, usual, *where, ("must be at most", "must be at least"))
            return


def _lengths(written: object) -> dict[str, timedelta | None]:
    """The times to live that are written and could stay if it were for themselves alone."""
    given = section(written, "tasks", "ttl")
    reader = DurationIn(most=LONGEST).read
    return {key: read((written, {}), ("tasks", "ttl", key), reader) for key in _KEYS if key in given}


def _maximum_holders(
    written: object,
) -> tuple[Mapping[str, object], Mapping[str, object], Mapping[str, object]] | None:
    """The file, its `tasks` and their `ttl`, where the maximum is null or not there; None where it is, or cannot be."""
    if not isinstance(written, Mapping):
        return None
    tasks = written.get("tasks", {})
    ttl = tasks.get("ttl", {}) if isinstance(tasks, Mapping) else None
    if not isinstance(tasks, Mapping) or not isinstance(ttl, Mapping) or ttl.get("max") is not None:
        return None
    return written, tasks, ttl
