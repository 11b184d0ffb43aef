"""The route about callers: what each uses of its limits. `CallerRoutes` has its handler.

A caller is listed if its token is remembered here, if it uses a limit here, or if it has an
unfinished task. Rates and tasks are those of the store, so with a shared one they are of all
replicas. The other limits are of the replica that answers.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from taskgate.admission.concurrency import OpenStreams
from taskgate.admission.mounts import Mounts
from taskgate.admission.rates import QuotaSubject, QuotaSubjects, RateLimiter
from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.context import ANONYMOUS, AuthContext
from taskgate.clock import Clock
from taskgate.domain.limits import CapScope
from taskgate.domain.record import CallerNames
from taskgate.operators.access import OperatorAccess, Role
from taskgate.operators.cursors import ListCursors, ListQuery
from taskgate.operators.routes import (
    CALLER_FILTER,
    Answer,
    ApiCall,
    CallerName,
    NamedAnswer,
    Route,
    caller_reference,
    is_caller,
    names_of,
)
from taskgate.sessions.registry import HostSessions
from taskgate.stores.base import TaskStore

MOST_COUNTED: Final = 10_000
"""The most unfinished tasks that are counted."""
_CALLS: Final = "calls_per_context"
_GENERAL: Final = QuotaSubject(None, None)


class CallerListQuery(ListQuery):
    """Which callers a list has, and the page."""

    caller: Annotated[CallerName | None, Field(description=CALLER_FILTER)] = None


class LimitUse(Answer):
    """A limit, and how much of it a caller uses."""

    limit: Annotated[
        str, Field(description="The name: that of a rate in `limits.rate`, or the key of the configuration.")
    ]
    upstream: Annotated[str | None, Field(description="The upstream, for a limit of each upstream.")] = None
    used: Annotated[int, Field(description="Units of a rate that have not come back, or the number that is open.")]
    most: Annotated[int | None, Field(description="The most; null if the caller's own limit is not known here.")]
    is_shared: Annotated[bool, Field(description="Whether the number is of all replicas, not of this one alone.")]


class CallerItem(NamedAnswer):
    """A caller, and what it uses."""

    caller: Annotated[str, Field(description="The reference of the caller.")]
    limits: tuple[LimitUse, ...]


class CallerPage(Answer):
    """Callers, by reference."""

    now: datetime
    replica: Annotated[str, Field(description="The replica that answers.")]
    items: tuple[CallerItem, ...]
    next: Annotated[str | None, Field(description="The `cursor` of the next page.")]
    is_complete: Annotated[bool, Field(description="Whether all unfinished tasks were counted.")]


class OpenUse(NamedTuple):
    """The use of one limit by what a caller has open at this replica; `most` is that of any caller."""

    limit: str
    upstream: str | None
    used: int
    most: int


class LimitedParts(NamedTuple):
    """The parts of a gateway that count what callers use. `recent` returns the callers of the last
    requests.
    """

    live: RuntimeConfig
    mounts: Mounts
    sessions: HostSessions
    streams: OpenStreams
    rates: RateLimiter
    subjects: QuotaSubjects
    recent: Callable[[], Iterable[AuthContext]]


class CallerRoutes:
    """The handler. `is_shared` says whether replicas share the store; `replica` is the name of this
    process.
    """

    def __init__(
        self,
        parts: LimitedParts,
        *,
        store: TaskStore,
        cursors: ListCursors,
        clock: Clock,
        access: OperatorAccess,
        replica: str,
        is_shared: bool,
    ) -> None:
        self._parts = parts
        self._store = store
        self._cursors = cursors
        self._clock = clock
        self._access = access
        self._replica = replica
        self._is_shared = is_shared

    def routes(self) -> Iterator[Route]:
        """The route of callers."""
        yield Route(
            method="GET",
            path="/callers",
            summary="List callers",
            description="What each caller uses of its limits: rates, calls, places in queues, sessions, streams, waits "
            "and unfinished tasks. With `is_shared` a number is of all replicas.",
            role=Role.VIEWER,
            query=CallerListQuery,
            answer=CallerPage,
            handler=self._list,
        )

    async def _list(self, call: ApiCall) -> CallerPage:
        query: CallerListQuery = call.query
        place = "" if query.cursor is None else str(self._cursors.open(query.cursor, query.listing)[0])
        tasks, names, is_complete = await self._tasks()
        known = self._known()
        named = {**names, **{key: caller.names for key, caller in known.items()}}
        seen = {key: self._access.names(each) for key, each in named.items()}
        open_ = self._open(known)
        keys = sorted({*known, *open_, *tasks})
        if query.caller is not None:
            keys = [key for key in keys if is_caller(query.caller, key, seen.get(key))]
        keys = [key for key in keys if key > place]
        page = keys[: query.limit]
        # A shared store is asked for all at once.
        items = await asyncio.gather(
            *(self._item(key, seen.get(key), known.get(key), open_.get(key, []), tasks[key]) for key in page)
        )
        following = self._cursors.seal([page[-1]], query.listing) if len(keys) > query.limit else None
        return CallerPage(
            now=self._clock.now(),
            replica=self._replica,
            items=tuple(items),
            next=following,
            is_complete=is_complete,
        )

    async def _tasks(self) -> tuple[Counter[str], dict[str, CallerNames], bool]:
        """The unfinished tasks of each caller, the names that these have, and whether all were counted."""
        part = await self._store.scan(
            unfinished=True, wants=lambda _: True, after=None, limit=MOST_COUNTED, now=self._clock.now()
        )
        # A record may be found twice.
        found = {record.id: record for record in part.heads}.values()
        names = {record.owner.context: record.caller for record in found if record.caller is not None}
        return Counter(record.owner.context for record in found), names, part.next is None

    def _known(self) -> dict[str, AuthContext]:
        """The callers of which more than their key is known, by key."""
        found = {session.caller.key: session.caller for session in self._parts.sessions.loaded()}
        found.update((caller.key, caller) for caller in self._parts.recent())
        return found

    def _open(self, known: Mapping[str, AuthContext]) -> dict[str, list[OpenUse]]:
        """What callers have open here, by key.

        Calls are those of a person with all clients: they stand at the first client of it that is `known`.
        """
        clients: dict[str, str] = {}
        for caller in known.values():
            clients.setdefault(caller.subject, caller.key)
        rules = self._parts.live.current
        found: defaultdict[str, list[OpenUse]] = defaultdict(list)
        for name, mount in sorted(self._parts.mounts.by_name.items()):
            bulkhead = mount.bulkhead
            for subject, (calls, waiting) in bulkhead.usage().items():
                key = clients.get(subject, subject)
                if calls:
                    found[key].append(OpenUse(_CALLS, name, calls, bulkhead.share))
                if waiting:
                    found[key].append(OpenUse("queue.size", name, waiting, bulkhead.places))
        for key, count in Counter(session.owner.context for session in self._parts.sessions.loaded()).items():
            found[key].append(OpenUse("sessions_per_context", None, count, rules.sessions.context))
        for key, (streams, waits) in self._parts.streams.usage().items():
            if streams:
                found[key].append(OpenUse("max_streams_per_context", None, streams, rules.streams.context))
            if waits:
                found[key].append(OpenUse("waits_per_context", None, waits, rules.waits.context))
        return found

    async def _item(
        self, key: str, names: CallerNames | None, caller: AuthContext | None, open_: list[OpenUse], tasks: int
    ) -> CallerItem:
        """A caller. Without its token, it is not known which overrides it has."""
        rules = self._parts.live.current
        subject: QuotaSubject | None = _GENERAL
        if caller is not None or key == ANONYMOUS.key:
            subject = self._parts.subjects.of(caller or ANONYMOUS)
        elif rules.overrides:
            subject = None
        override = None if subject is None else subject.override
        cap = None
        if subject is not None:
            caps = rules.caps.applicable({} if override is None else override.caps, None, False)
            cap = next((each.limit for each in caps if each.scope is CapScope.CONTEXT and not each.bytes), None)
        limits = [LimitUse(limit="tasks_per_context", used=tasks, most=cap, is_shared=self._is_shared)]
        for limit, upstream, used, general in open_:
            most: int | None = general
            if limit == _CALLS:
                own = None if override is None else override.calls
                most = None if subject is None else own or general
            limits.append(LimitUse(limit=limit, upstream=upstream, used=used, most=most, is_shared=False))
        person = key if key == ANONYMOUS.key else None if caller is None else caller.subject
        rates = () if subject is None else await self._parts.rates.usage(key, person, subject)
        limits += [LimitUse(limit=each[0], used=each[1], most=each[2], is_shared=self._is_shared) for each in rates]
        return CallerItem(caller=caller_reference(key), **names_of(names), limits=tuple(limits))
