"""Ears for what parts of a gateway tell that a test runs alone: the events that metrics get, and lines of audit logs.

They are put up once in a run, and as soon as something else has imported those parts; see `told`.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary, ref

from helpers import told

_FOR_LISTENERS = ("task", "owner")
"""What events hold for listeners, who show none of it: their own words are what is judged."""


def _said(event: Any) -> str:
    hidden = {name: None for name in _FOR_LISTENERS if name in getattr(event, "__dataclass_fields__", ())}
    return repr(replace(event, **hidden) if hidden else event)


def _labels(recorder: Any) -> Iterator[str]:
    page, _ = recorder.render(None)
    yield told.labels_of(page.decode())


def _for_events() -> None:
    ring = sys.modules.get("taskgate.telemetry.ring")
    if ring is None or hasattr(ring.EventRing.emit, "__wrapped__"):
        return
    emit, subscribe = ring.EventRing.emit, ring.EventRing.subscribe
    # A recorder holds its ring, so the value is weak as well.
    recorders: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @wraps(subscribe)
    def subscribing(its: Any, reader: Any, *parts: Any) -> None:
        if hasattr(reader, "render"):
            recorders[its] = ref(reader)
        subscribe(its, reader, *parts)

    @wraps(emit)
    def recording(its: Any, event: Any) -> None:
        now, recorder = told.now(), recorders.get(its, lambda: None)()
        if recorder is not None and id(recorder) not in now.later:
            now.later |= {id(recorder): lambda: _labels(recorder), "events": lambda: map(_said, now.emitted)}
        if recorder is not None:
            # Of a request what labels are made of, and not the message.
            is_request = type(event).__name__ == "RequestContext"
            now.emitted.append((event.route, event.mount, event.method, event.error) if is_request else event)
        emit(its, event)

    ring.EventRing.emit, ring.EventRing.subscribe = recording, subscribing


def _for_audit_lines() -> None:
    chain = sys.modules.get("taskgate.telemetry.auditlog.chain")
    if chain is None or hasattr(chain.Chain.add, "__wrapped__"):
        return
    add = chain.Chain.add

    @wraps(add)
    def adding(its: Any, document: Any) -> bytes:
        line: bytes = add(its, document)
        # On a thread of its own, perhaps: to append is all that is done.
        told.now().hear(line.decode())
        return line

    chain.Chain.add = adding


told.EARS += [_for_events, _for_audit_lines]
