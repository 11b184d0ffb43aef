"""What the keys about tasks say together, but for how long those may be kept at all (retention).

What lives here: the rules between keys of one rule of `tasks.upgrade`, between the rules, and of `tasks.poll_interval`.
What must not: the models. What holds: as in coherence, malformed parts contradict nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

from taskgate.config.problems import Location, dotted
from taskgate.config.retention import ceiling, mode_of, usual_longest
from taskgate.config.units import DurationIn, write_duration
from taskgate.config.written import Contradiction, listed, read, section, told

_RULES: Final = ("tasks", "upgrade")
_OF_TASKS: Final = ("ttl", "ttl_min", "ttl_max", "deadline", "cap")
_KEYS: Final = {"ttl_min": "min", "ttl": "default", "ttl_max": "max"}


def task_contradictions(written: object, usual: object) -> Iterator[Contradiction]:
    """Every contradiction among these keys; a key that `written` lacks is as in `usual`."""
    for index, rule in enumerate(map(section, listed(written, *_RULES))):
        yield from _of_mode(rule, (*_RULES, index))
        yield from _of_lengths(rule, (*_RULES, index), written, usual)
    yield from _never_asked(written)
    yield from _of_polls(written, usual)


def _of_mode(rule: Mapping[str, object], here: Location) -> Iterator[Contradiction]:
    mode = rule.get("mode")
    if not isinstance(mode, str):
        return
    if mode != "auto" and rule.get("inline_grace") is not None:
        yield (*here, "inline_grace"), "must be null unless mode is auto"
    if mode == "sync":
        for key in _OF_TASKS:
            if rule.get(key) is not None:
                yield (*here, key), "must be null with mode sync, which makes no tasks"
        if rule.get("on_lost") == "rerun":
            yield (*here, "on_lost"), "must be fail with mode sync, which makes no tasks"


def _of_lengths(rule: Mapping[str, object], here: Location, written: object, usual: object) -> Iterator[Contradiction]:
    longest, mode = ceiling(written), mode_of(written)
    given = {key: _length(rule.get(key)) for key in _KEYS}
    for key, length in given.items():
        if length and length > longest:
            yield (*here, key), f"must be at most {write_duration(longest)} with auth.mode {mode}"
            return
    for lower, upper in (("ttl_min", "ttl_max"), ("ttl_min", "ttl"), ("ttl", "ttl_max")):
        if given[lower] is None and given[upper] is None:
            continue
        least = given[lower] or _general(_KEYS[lower], written, usual)
        most = given[upper] or _general(_KEYS[upper], written, usual)
        if least and most and least > most:
            yield _disordered(given, (lower, upper), here)
            return


def _disordered(given: Mapping[str, timedelta | None], pair: tuple[str, str], here: Location) -> Contradiction:
    """The two named where the rule has one of them."""
    lower, upper = pair
    if given[lower] is None:
        return (*here, upper), f"must be at least {dotted(('tasks', 'ttl', _KEYS[lower]))} where {lower} is not given"
    if given[upper] is None:
        return (*here, lower), f"must be at most {dotted(('tasks', 'ttl', _KEYS[upper]))} where {upper} is not given"
    return (*here, lower), f"must be at most {dotted((*here, upper))}"


def _general(key: str, written: object, usual: object) -> timedelta | None:
    """A time to live of `tasks.ttl`, with what null means there."""
    for tree in (written, usual):
        found = section(tree, "tasks", "ttl")
        if found.get(key) is not None:
            return _length(found[key])
    mode = mode_of(written)
    return usual_longest(mode) if key == "max" and mode else None


def _never_asked(written: object) -> Iterator[Contradiction]:
    """Rules behind one that is for every tool of their upstream, whatever its hints."""
    everywhere: dict[str | None, int] = {}
    for index, rule in enumerate(map(section, listed(written, *_RULES))):
        upstream = rule.get("upstream")
        if upstream is not None and not isinstance(upstream, str):
            continue
        before = min((everywhere[name] for name in {None, upstream} & everywhere.keys()), default=None)
        if before is not None:
            yield (*_RULES, index, "tool"), f"can never match: {dotted((*_RULES, before))} is for every tool"
        elif rule.get("tool") == "*" and not section(rule, "hints") and rule.get("shadow") is not True:
            everywhere[upstream] = index


def _of_polls(written: object, usual: object) -> Iterator[Contradiction]:
    here = ("tasks", "poll_interval")
    if not section(written, *here):
        return
    read_here = {key: read((written, usual), (*here, key), DurationIn().read) for key in ("min", "base", "max")}
    for lower, upper in (("min", "max"), ("min", "base"), ("base", "max")):
        least, most = read_here[lower], read_here[upper]
        if least and most and least > most:
            words = ("must be at most", "must be at least")
            yield told(written, usual, (*here, lower), (*here, upper), words)
            return


def _length(written: object) -> timedelta | None:
    """A duration that could stay if it were for itself alone."""
    try:
        return None if written is None else DurationIn().read(written)
    except ValueError:
        return None
