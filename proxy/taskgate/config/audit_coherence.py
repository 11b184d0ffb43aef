"""What the keys about the audit log say together.

What lives here: the rules between keys of one sink, between sinks, and of `audit.chain`; and what sinks of files have
where nothing is written. What must not: the models. What holds: as in coherence, malformed parts contradict nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from taskgate.config.problems import Location
from taskgate.config.written import Contradiction, listed, section

_SINKS: Final = ("audit", "sinks")
_CHAIN: Final = ("audit", "chain")
_OF_FILES: Final[Mapping[str, Any]] = {"rotate": {}, "fsync": "interval"}


def with_files(written: object) -> object:
    """What is written, with `rotate: {}` and `fsync: interval` for sinks that are files, unless they are given."""
    sinks = listed(written, *_SINKS)
    if not isinstance(written, Mapping) or not any(_is_file(sink) for sink in sinks):
        return written
    filled = [{**_OF_FILES, **section(sink)} if _is_file(sink) else sink for sink in sinks]
    return {**written, "audit": {**section(written, "audit"), "sinks": filled}}


def audit_contradictions(written: object) -> Iterator[Contradiction]:
    """Every contradiction among these keys."""
    names: set[str] = set()
    places: set[object] = set()
    for index, sink in enumerate(map(section, listed(written, *_SINKS))):
        here = (*_SINKS, index)
        yield from _of_name(sink, here, names)
        yield from _of_type(sink, here)
        yield from _of_place(sink, here, places)
    chain = section(written, *_CHAIN)
    if chain.get("enabled") is False and chain.get("sign_key_file") is not None:
        yield (*_CHAIN, "sign_key_file"), "must be null with audit.chain.enabled false, which signs nothing"


def _of_name(sink: Mapping[str, object], here: Location, names: set[str]) -> Iterator[Contradiction]:
    name = sink.get("name")
    if isinstance(name, str) and name in names:
        yield (*here, "name"), "must not be the name of another sink"
    names.add(str(name))


def _of_type(sink: Mapping[str, object], here: Location) -> Iterator[Contradiction]:
    kind = sink.get("type")
    if kind == "stdout":
        for key in ("path", *_OF_FILES):
            if sink.get(key) is not None:
                yield (*here, key), "must be null with type stdout, which is no file"
    elif kind == "file" and sink.get("fsync", "") is None:
        yield (*here, "fsync"), "must not be null with type file"


def _of_place(sink: Mapping[str, object], here: Location, places: set[object]) -> Iterator[Contradiction]:
    kind, path = sink.get("type"), sink.get("path")
    if kind not in ("file", "stdout") or not (path is None or isinstance(path, str)):
        return
    place = (kind, path)
    if place in places:
        what = "type" if kind == "stdout" else "path"
        yield (*here, what), "must not be that of another sink: their lines would be mixed"
    places.add(place)


def _is_file(sink: object) -> bool:
    return section(sink).get("type") == "file"
