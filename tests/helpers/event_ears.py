"""Ears for what parts of a gateway tell that a test runs alone: the events that metrics get, and lines of audit logs.

They are put up once in a run, and as soon as something else has imported those parts; see `told`.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import wraps
from typing import Any

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
    metrics = sys.modules.get("taskgate.telemetry.metrics.prometheus")
    if metrics is None or hasattr(metrics.PrometheusRecorder.emit, "__wrapped__"):
        return
    emit = metrics.PrometheusRecorder.emit

    @wraps(emit)
    def recording(recorder: Any, event: Any) -> None:
        now = told.now()
        if id(recorder) not in now.later:
            now.later |= {id(recorder): lambda: _labels(recorder), "events": lambda: map(_said, now.emitted)}
        now.emitted.append(event)
        emit(recorder, event)

    metrics.PrometheusRecorder.emit = recording


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
