"""What gateways tell whom it does not concern: log lines, events, audit lines, labels, errors. It must hold no secret.

The fixture `told`, which every test gets, judges what was told during that test. Log lines are heard here. What hosts
get, pages of metrics and files of audit logs come here by `now()` from those who speak to a gateway; what parts of one
tell that run alone, by `event_ears`.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import pytest

from helpers import secrets

MARKER = "unheard(reason): nothing that the test tells is judged; tests/house/test_told.py lists every such test"
_LABEL = re.compile(r'="([^"]*)"')
_STOCK = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_TRACE = re.compile(r"""(trace_id["']?: ?["'])[0-9a-f]{32}""")
EARS: list[Callable[[], None]] = []
"""What is put up before each test, to hear more than log lines."""
_ours = logging.getLogger("taskgate")


class Told:
    """What the gateways of a test told: `texts` has log lines, errors and pages, `events` what was counted."""

    def __init__(self) -> None:
        self.emitted: list[Any] = []
        self.texts: list[str] = []
        self.later: dict[object, Callable[[], Iterable[str]]] = {}
        """What has its texts only when they are judged, by what they are of."""
        self._leaked: list[str] = []

    def of(self, kind: type[Any]) -> list[Any]:
        """The events of that kind."""
        return [event for event in self.emitted if isinstance(event, kind)]

    def hear(self, text: str) -> None:
        """Take note of a text, to be judged when the test ends. Ids of traces look like others, and are told."""
        self.texts.append(_TRACE.sub(r"\1", text) if "trace_id" in text else text)

    def hear_page(self, page: str) -> None:
        """Take note of the labels of a page of metrics."""
        self.hear(labels_of(page))

    def forget(self) -> None:
        """Judge what was told so far, and hold on to none of it: for a test that measures what a gateway keeps."""
        if self.texts or self.emitted:
            self._leaked = self.leaks()
        self.emitted.clear()
        self.texts.clear()

    def leaks(self) -> list[str]:
        """Every secret in all of it, with what stands before it."""
        texts = dict.fromkeys([*self.texts, *chain.from_iterable(late() for late in self.later.values())])
        return [*self._leaked, *(secrets.found_in("\n".join(texts)) if texts else ())]


_now = Told()


def labels_of(page: str) -> str:
    """The labels of a page of metrics."""
    return " ".join(_LABEL.findall(page))


def now() -> Told:
    """What was told in the test that runs."""
    return _now


@pytest.fixture(autouse=True)
def told(request: pytest.FixtureRequest) -> Iterator[Told]:
    """What was told; a test in which that holds a secret fails."""
    global _now
    _now, before = Told(), secrets.known()
    for put_up in EARS:
        put_up()
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


_ours.addHandler(_Ear())
_ours.setLevel(logging.DEBUG)
