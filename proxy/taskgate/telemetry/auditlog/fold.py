"""The fold of events without a known caller: `EventFold` makes few lines of many such events.

Requests that taskgate refuses before it knows their caller cost their sender nothing. With a line
for each, anyone could roll the audit log over. So the first event of a kind and an address is a line
at once, and the following ones are counted. `data.count` of a line is the number of its events.
The line shows the last of them. The sum of `count` over all lines is the number of events.
"""

from collections.abc import Callable, Iterable
from typing import Final

from taskgate.telemetry.auditlog.catalogue import EVENTS
from taskgate.telemetry.auditlog.events import MAX_TEXT, AuditEvent, EventOrigin, origin_of
from taskgate.telemetry.request_context import RequestContext

COUNT: Final = "count"
"""The member of `data` that these lines have, and no line of a known caller."""
MIN_PAUSE, MAX_PAUSE = 1.0, 10.0
"""Seconds from a line to the next one of the same kind and address; doubled from line to line."""
KEYS: Final = 256
"""Kinds with addresses that have lines of their own, at most."""
LINES: Final = 300
"""Lines of all addresses together within a minute, at most. A line has about 1,100 bytes."""
_MINUTE: Final = 60.0
_COUNTED: Final = frozenset(name for name, kind in EVENTS.items() if COUNT in kind.members)

_Kind = tuple[str, str, str | None]
"""Name, outcome and reason: few, as all three are from closed sets."""


class _Counted:
    """The events of a key since its last line: their number, and the last of them.

    The next line is due at `due`, and the one after it `pause` seconds later.
    """

    __slots__ = ("count", "due", "event", "pause")

    def __init__(self, due: float, pause: float) -> None:
        self.count = 0
        self.event: AuditEvent | None = None
        self.due, self.pause = due, pause

    def add(self, event: AuditEvent, times: int = 1) -> None:
        """Count an event."""
        self.event = event
        self.count += times

    def line(self) -> AuditEvent | None:
        """The line of what was counted, which begins again at none; None without any."""
        event, count = self.event, self.count
        self.event, self.count = None, 0
        return None if event is None else _with_count(event, count)


class EventFold:
    """The events without a known caller that have no line yet. Times are seconds of a monotonic clock.

    Beyond `KEYS` addresses and `LINES` lines, the events of a kind are counted together, whatever
    their address. Such a line has no request, unless it is of one event. Each kind has one a minute.

    - `_keys`: the events by kind and address; one without events for a pause is forgotten
    - `_others`: the events that are counted by kind alone
    - `_since`, `_lines`: the begin of the minute, and the lines in it
    """

    def __init__(self, block_of: Callable[[str], str]) -> None:
        """`block_of` returns what counts as one address."""
        self._block_of = block_of
        self._keys: dict[tuple[_Kind, str], _Counted] = {}
        self._others: dict[_Kind, _Counted] = {}
        self._since = 0.0
        self._lines = 0

    @property
    def is_empty(self) -> bool:
        """Whether no line will be due."""
        return not self._keys and not self._others

    def lines(self, events: Iterable[AuditEvent], now: float) -> list[AuditEvent]:
        """The lines to write at once for events of requests without a known caller; counts the rest.

        An event that names its caller or a task all the same, or of a kind that no count is for, has
        its line.
        """
        found = []
        for event in events:
            if event.name not in _COUNTED or event.caller is not None or event.subject is not None:
                found.append(event)
            elif self._count(_bounded(event), now):
                found.append(_with_count(event, 1))
        return found

    def due(self, now: float) -> list[AuditEvent]:
        """The lines of counts whose pause is over."""
        found = []
        for key, counted in list(self._keys.items()):
            if counted.due > now:
                continue
            line = counted.line()
            if line is None:
                del self._keys[key]
                continue
            counted.pause = min(2 * counted.pause, MAX_PAUSE)
            counted.due = now + counted.pause
            if self._take_line(now):
                found.append(line)
            else:
                self._count_together(line, count_of(line), now)
        for kind, counted in list(self._others.items()):
            if counted.due <= now:
                line = counted.line()
                if line is None:
                    del self._others[kind]
                else:
                    counted.due = now + counted.pause
                    found.append(line)
        return found

    def rest(self) -> list[AuditEvent]:
        """The lines of all that is counted; nothing is left."""
        lines = [counted.line() for each in (self._keys, self._others) for counted in each.values()]
        self._keys.clear()
        self._others.clear()
        return [line for line in lines if line is not None]

    def _count(self, event: AuditEvent, now: float) -> bool:
        """Count an event, or return True for the first of its kind and address."""
        kind = event.name, event.outcome, event.reason
        key = kind, self._block_of(event.origin.address if event.origin is not None else "")
        known = self._keys.get(key)
        if known is not None:
            known.add(event)
            return False
        if len(self._keys) < KEYS and self._take_line(now):
            self._keys[key] = _Counted(now + MIN_PAUSE, MIN_PAUSE)
            return True
        self._count_together(event, 1, now)
        return False

    def _count_together(self, event: AuditEvent, times: int, now: float) -> None:
        kind = event.name, event.outcome, event.reason
        known = self._others.get(kind)
        if known is None:
            known = self._others[kind] = _Counted(now + _MINUTE, _MINUTE)
        elif known.event is not None:
            event = event._replace(origin=None, limit=None)
        known.add(event, times)

    def _take_line(self, now: float) -> bool:
        if now - self._since >= _MINUTE:
            self._since, self._lines = now, 0
        self._lines += 1
        return self._lines <= LINES


def _with_count(event: AuditEvent, count: int) -> AuditEvent:
    return event._replace(data={**(event.data or {}), COUNT: count}, weight=0)


def count_of(event: AuditEvent) -> int:
    """How many events without a known caller a line stands for; 0 for any other line."""
    return 0 if event.data is None else int(event.data.get(COUNT, 0))


def _bounded(event: AuditEvent) -> AuditEvent:
    """The event without what may be large: it waits longer than a batch of events does."""
    origin = event.origin
    if type(origin) is RequestContext:
        origin = origin_of(origin, final=True)
    if type(origin) is not EventOrigin:
        return event
    path, summary = origin.path, origin.summary._replace(arguments=None)
    return event._replace(origin=origin._replace(path=path and path[:MAX_TEXT], summary=summary), weight=0)
