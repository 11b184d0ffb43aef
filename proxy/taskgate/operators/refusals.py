"""The route of refusals: `RefusalLog` keeps what this replica refused last, `RefusalRoutes` shows it."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum
from ipaddress import ip_network
from logging import getLogger
from math import inf
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from taskgate.auth.context import ANONYMOUS
from taskgate.clock import Clock
from taskgate.domain.record import CallerNames
from taskgate.operators.access import OperatorAccess, Role
from taskgate.operators.routes import WHOLE, Answer, ApiCall, NamedAnswer, Query, Route, caller_reference, names_of
from taskgate.telemetry import events
from taskgate.telemetry.request_context import current
from taskgate.telemetry.ring import EventRing, Handlers

MOST_REFUSALS: Final = 200
"""The most refusals that are kept."""
MOST_OF_SOURCE: Final = 40
"""The most of one caller, or of one address without a known caller: a host may name any number of tools."""
_LONGEST_NAME: Final = 256
"""Characters of the name of a tool that are kept: a host may have invented it."""

_EVENT_EVERY: Final = 1.0
"""Seconds between two events about one entry."""
_MOST_EVENTS: Final = 20
"""Events in a second about all entries: a flood must leave other events in the feed."""

_ANONYMOUS: Final = caller_reference(ANONYMOUS.key)
_log = getLogger("taskgate.operators")


class RefusalKind(StrEnum):
    """The kind of a limit or check that refused."""

    RATE = "rate"
    CAP = "cap"
    QUEUE = "queue"
    AUTH = "auth"
    AUTHORIZATION = "authorization"
    SECURITY = "security"


class RefusalQuery(Query):
    """The page."""

    limit: Annotated[int, Field(ge=1, le=MOST_REFUSALS, description="The most refusals of the answer."), WHOLE] = 50


class RefusalItem(NamedAnswer):
    """Equal refusals: how many, and the time of the newest."""

    at: Annotated[datetime, Field(description="The time of the newest.")]
    kind: RefusalKind
    caller: Annotated[str | None, Field(description="The reference of the caller, if it is known.")]
    address: Annotated[str | None, Field(description="The /24 of an IPv4 address, the /64 of an IPv6 address.")]
    upstream: str | None
    tool: Annotated[str | None, Field(description="The tool that a rule refused, cut to 256 characters.")]
    reason: Annotated[str, Field(description="The policy, cap, rule or other reason, as in metrics.")]
    count: Annotated[int, Field(description="How often it was refused, as long as it is kept.")]


class RefusalList(Answer):
    """The newest refusals of the replica that answers, newest first."""

    now: datetime
    replica: str
    items: tuple[RefusalItem, ...]
    left_out: Annotated[
        int,
        Field(
            description="Refusals since the start that are not kept, because their caller or address has "
            f"{MOST_OF_SOURCE} newer entries."
        ),
    ]


class _Refused(NamedTuple):
    """The fields that equal refusals have in common, as in `RefusalItem`."""

    kind: RefusalKind
    caller: str | None
    address: str | None
    upstream: str | None
    tool: str | None
    reason: str

    @property
    def source(self) -> str | None:
        """The caller; the address if no token tells callers apart."""
        return self.address if self.caller in (None, _ANONYMOUS) else self.caller


class _Entry(NamedTuple):
    """Equal refusals: when the newest was, how many, the names of its caller, and when `on_refusal` was called."""

    at: datetime
    times: int
    names: CallerNames | None
    published: float


class RefusalLog:
    """The newest refusals: a reader of events. Equal ones are one entry, so a flood leaves others.

    Beyond MOST_REFUSALS the entry that was not repeated for longest is dropped. Beyond MOST_OF_SOURCE it
    is one of the same caller or address, and `left_out` counts its refusals. `total` counts all. `on_refusal`
    is called with each new entry, and with a repeated one once a second at most. What it was not called with
    waits for `publish_counts`.

    - `_entries`: by what equal refusals have in common
    - `_sources`: the entries of each caller or address, in the same order
    - `_waiting`: entries that have changed since that call
    - `_second`, `_events`: the monotonic time at which a second began, and the calls in it
    """

    def __init__(self, event_ring: EventRing, access: OperatorAccess) -> None:
        self._ring = event_ring
        self.access = access
        self._entries: OrderedDict[_Refused, _Entry] = OrderedDict()
        self._sources: dict[str | None, OrderedDict[_Refused, None]] = {}
        self._waiting: dict[_Refused, None] = {}
        self.left_out = self.total = 0
        self._second = self._events = 0.0
        self.on_refusal: Callable[[RefusalItem], None] = lambda _: None

    def subscribe(self) -> None:
        """Keep refusals from now on. The usual request emits none of these events."""
        handlers: Handlers = {
            events.RateLimitChecked: self._note_rate,
            events.CapRefused: lambda event: self._add(RefusalKind.CAP, f"{event.cap}_{event.scope}"),
            events.QueueRefused: lambda event: self._add(RefusalKind.QUEUE, event.reason, event.mount),
            events.TokenChecked: self._note_token,
            events.AccessRefused: self._note_access,
            events.SuspicionRaised: lambda event: self._add(RefusalKind.SECURITY, event.kind, event.mount),
        }
        self._ring.subscribe(self, handlers)
        self._ring.hasten(self, handlers.keys())

    def newest(self, limit: int) -> tuple[RefusalItem, ...]:
        """At most `limit` refusals, newest first."""
        self._ring.fold()
        newest = list(reversed(self._entries.items()))[:limit]
        return tuple(self._item(refused, entry) for refused, entry in newest)

    def _item(self, refused: _Refused, entry: _Entry) -> RefusalItem:
        # A reload may have turned the names off since.
        names = names_of(self.access.names(entry.names))
        return RefusalItem(at=entry.at, count=entry.times, **refused._asdict(), **names)

    def note_failure(self, event: events.Event) -> None:
        _log.exception("a refusal was not kept for operators", extra={"fact": type(event).__name__})

    def _note_rate(self, event: events.RateLimitChecked) -> None:
        if event.decision == "rejected":
            self._add(RefusalKind.RATE, event.policy)

    def _note_token(self, event: events.TokenChecked) -> None:
        if event.reason != "ok":
            self._add(RefusalKind.AUTH, event.reason)

    def _note_access(self, event: events.AccessRefused) -> None:
        if not event.shadow:
            tool = None if event.tool is None else event.tool[:_LONGEST_NAME]
            self._add(RefusalKind.AUTHORIZATION, event.rule or "default", event.mount, tool)

    def _add(self, kind: RefusalKind, reason: str, upstream: str | None = None, tool: str | None = None) -> None:
        self.total += 1
        request = current()
        caller = address = names = None
        if request is not None:
            if request.caller is not None:
                caller, names = caller_reference(request.caller.key), request.caller.names
            address, upstream = _block(request.address), upstream or request.mount
        refused = _Refused(kind, caller, address, upstream, tool, reason)
        before = self._entries.pop(refused, None)
        count, published = (0, -inf) if before is None else (before.times, before.published)
        self._entries[refused] = _Entry(self._ring.now, count + 1, names, published)
        same = self._sources.setdefault(refused.source, OrderedDict())
        same[refused] = None
        same.move_to_end(refused)
        self._waiting[refused] = None
        self._publish(refused, self._ring.elapsed)
        if len(same) > MOST_OF_SOURCE:
            self.left_out += self._drop(next(iter(same)))
        elif len(self._entries) > MOST_REFUSALS:
            self._drop(next(iter(self._entries)))

    def _drop(self, refused: _Refused) -> int:
        """Drop an entry, and return how many refusals it had."""
        count = self._entries.pop(refused).times
        self._waiting.pop(refused, None)
        same = self._sources[refused.source]
        del same[refused]
        if not same:
            del self._sources[refused.source]
        return count

    def publish_counts(self, elapsed: float) -> None:
        """Call `on_refusal` with entries that wait, at this monotonic time."""
        for refused in tuple(self._waiting):
            self._publish(refused, elapsed)

    def _publish(self, refused: _Refused, elapsed: float) -> None:
        entry = self._entries[refused]
        if elapsed - self._second >= 1.0:
            self._second, self._events = elapsed, 0
        if elapsed - entry.published >= _EVENT_EVERY and self._events < _MOST_EVENTS:
            self._events += 1
            self._entries[refused] = entry._replace(published=elapsed)
            del self._waiting[refused]
            self.on_refusal(self._item(refused, entry))


class RefusalRoutes:
    """The handler. `replica` is the name of this process."""

    def __init__(self, refusals: RefusalLog, *, replica: str, clock: Clock) -> None:
        self._refusals = refusals
        self._replica = replica
        self._clock = clock

    def routes(self) -> Iterator[Route]:
        """The route of refusals."""
        yield Route(
            method="GET",
            path="/refusals",
            summary="List the newest refusals",
            description=f"What this replica refused last, newest first: at most {MOST_REFUSALS}, and "
            f"{MOST_OF_SOURCE} of one caller or address. Equal refusals are one entry with a count. A restart "
            "forgets them.",
            role=Role.VIEWER,
            query=RefusalQuery,
            answer=RefusalList,
            handler=self._list,
        )

    async def _list(self, call: ApiCall) -> RefusalList:
        query: RefusalQuery = call.query
        refusals = self._refusals.newest(query.limit)
        now, left_out = self._clock.now(), self._refusals.left_out
        return RefusalList(now=now, replica=self._replica, items=refusals, left_out=left_out)


def _block(address: str) -> str | None:
    """The network of an address, which tells less of a person than the address; None for no address."""
    try:
        return str(ip_network((address, 64 if ":" in address else 24), strict=False))
    except ValueError:
        return None
