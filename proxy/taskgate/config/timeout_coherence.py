"""What the keys about patience with servers say together.

What lives here: the rules between keys of `timeouts`. What must not: the models. What holds: as in coherence, malformed
parts contradict nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from taskgate.config.problems import Location, dotted
from taskgate.config.units import DurationIn
from taskgate.config.written import Contradiction, listed, section

USUAL_CALL: Final = "1h"
"""`timeouts.call` unless it is given."""


def timeout_contradictions(written: object) -> Iterator[Contradiction]:
    """Every contradiction among these keys."""
    for name in section(written, "upstreams"):
        here = ("upstreams", name, "timeouts")
        given = section(written, *here)
        yield from _of_ceiling({"call": USUAL_CALL, **given}, here, "call" not in given)
        for index, rule in enumerate(listed(given, "tools")):
            yield from _of_ceiling(section(rule), (*here, "tools", index), False)


def _of_ceiling(given: Mapping[str, Any], here: Location, is_usual: bool) -> Iterator[Contradiction]:
    call, ceiling = _length(given.get("call")), _length(given.get("ceiling"))
    if call is not None and ceiling is not None and ceiling < call:
        hint = f", which is {given['call']} unless given" if is_usual else ""
        yield (*here, "ceiling"), f"must be at least {dotted((*here, 'call'))}{hint}"


def _length(written: object) -> timedelta | None:
    try:
        return None if written is None else DurationIn().read(written)
    except ValueError:
        return None
