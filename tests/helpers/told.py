"""What gateways tell whom it does not concern: log lines, events, audit lines, labels, errors. It must hold no secret.

Ears are put up once in a run. The fixture `told`, which every test gets, judges what they heard during that test. What
hosts get, and what a gateway in a process of its own tells, comes here by `now()` from those who speak to it. Nothing
of taskgate is imported, since every test imports this: its events are listened to once something else has.
"""

import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import wraps
from typing import Any

import pytest

from helpers import secrets

MARKER = "unheard(reason): nothing that the test tells is judged; tests/house/test_told.py lists every such test"
_LABEL = re.compile(r'="([^"]*)"')
_STOCK = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_TRACE = re.compile(r"""(trace_id["']?: ?["'])[0-9a-f]{32}""")
_FOR_LISTENERS = ("task", "owner")
"""What events hold for listeners, who show none of it: their own words are what is judged."""
_ours = logging.getLogger("taskgate")


class Told:
    """What the gateways of a test told: `texts` has log lines, errors and pages, `events` what was counted."""

    def __init__(self) -> None:
        self.emitted: list[Any] = []
        self.texts: list[str] = []
        self.audits: dict[int, Any] = {}

    def of(self, kind: type[Any]) -> list[Any]:
        """The events of that kind."""
        return [event for event in self.emitted if isinstance(event, kind)]

    def hear(self, text: str) -> None:
        """Take note of a text, to be judged when the test ends. Ids of traces look like others, and are told."""
        self.texts.append(_TRACE.sub(r"\1", text) if "trace_id" in text else text)

    def hear_page(self, page: str) -> None:
        """Take note of the labels of a page of metrics."""
        self.hear(" ".join(_LABEL.findall(page)))

    def leaks(self) -> list[str]:
        """Every secret in all of it, with what stands before it."""
        pages = [" ".join(_labels(audit)) for audit in self.audits.values()]
        texts = dict.fromkeys([*self.texts, *map(_said, self.emitted), *pages])
        return secrets.found_in("\n".join(texts)) if texts else []


_now = Told()


def now() -> Told:
    """What was told in the test that runs."""
    return _now


@pytest.fixture(autouse=True)
def told(request: pytest.FixtureRequest) -> Iterator[Told]:
    """What was told; a test in which that holds a secret fails."""
    global _now
    _now, before = Told(), secrets.known()
    _put_up_an_ear_for_events()
    _put_up_an_ear_for_audit_lines()
    leaked: list[str] = []
    if request.node.get_closest_marker("unheard") is None:
        yield _now
        leaked = _now.leaks()
    else:
        _ours.setLevel(logging.NOTSET)
        yield _now
        _ours.setLevel(logging.DEBUG)
    secrets.forget(before)
    if leaked:
        pytest.fail(f"secrets were told: {leaked}", pytrace=False)


def _labels(audit: Any) -> set[str]:
    """What the labels of our own series say, as a page would show it; to write one takes fifty times as long."""
    audit._registry.read_gauges()
    return {text for series in audit._registry._families.values() for texts in series._children for text in texts}


def _said(event: Any) -> str:
    hidden = {name: None for name in _FOR_LISTENERS if name in getattr(event, "__dataclass_fields__", ())}
    return repr(replace(event, **hidden) if hidden else event)


def _words(record: logging.LogRecord) -> str:
    """A record as text: its message, what it was made of, what hangs on it, and what every exception of it says."""
    more = {name: value for name, value in vars(record).items() if name not in _STOCK}
    errors = [f"{error!r} {error} {getattr(error, '__notes__', '')}" for error in _lineage(record)]
    try:
        message = record.getMessage()
    except (TypeError, ValueError, KeyError, OverflowError):
        message = str(record.msg)  # arguments that do not fit are the business of who writes the line
    return f"{message} {record.args!r} {more} {errors}"


def _lineage(record: logging.LogRecord) -> list[BaseException]:
    found: list[BaseException] = []
    waiting = [record.exc_info[1] if record.exc_info else None]
    while waiting:
        error = waiting.pop()
        if error is not None and error not in found:
            found.append(error)
            waiting += [error.__cause__, error.__context__]
            waiting += error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return found


class _Ear(logging.Handler):
    def handle(self, record: logging.LogRecord) -> bool:
        _now.hear(_words(record))
        return True


def _put_up_an_ear_for_events() -> None:
    metrics = sys.modules.get("taskgate.telemetry.metrics.prometheus")
    if metrics is None or hasattr(metrics.PrometheusRecorder.emit, "__wrapped__"):
        return
    emit = metrics.PrometheusRecorder.emit

    @wraps(emit)
    def recording(recorder: Any, event: Any) -> None:
        _now.audits[id(recorder)] = recorder
        _now.emitted.append(event)
        emit(recorder, event)

    metrics.PrometheusRecorder.emit = recording


def _put_up_an_ear_for_audit_lines() -> None:
    chain = sys.modules.get("taskgate.telemetry.auditlog.chain")
    if chain is None or hasattr(chain.Chain.add, "__wrapped__"):
        return
    add = chain.Chain.add

    @wraps(add)
    def adding(its: Any, document: Any) -> bytes:
        line: bytes = add(its, document)
        # On a thread of its own, perhaps: to append is all that is done.
        _now.hear(line.decode())
        return line

    chain.Chain.add = adding


_ours.addHandler(_Ear())
_ours.setLevel(logging.DEBUG)
