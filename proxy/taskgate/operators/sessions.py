"""The routes about sessions of hosts: list, end. `SessionRoutes` has their handlers.

Sessions are those that the replica has in memory. A session is named by a digest of its id, since
the id is nearly a secret. The digest needs no key: an id has 24 random bytes.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Annotated

from pydantic import Field

from taskgate.clock import Clock
from taskgate.domain.record import CallerNames
from taskgate.operators.access import ApiError, OperatorAccess, Role
from taskgate.operators.cursors import ListCursors, ListQuery
from taskgate.operators.routes import (
    CALLER_FILTER,
    Answer,
    ApiCall,
    CallerName,
    NamedAnswer,
    Route,
    Text,
    caller_reference,
    is_caller,
    names_of,
)
from taskgate.sessions.host_session import HostSession
from taskgate.sessions.registry import HostSessions


class SessionListQuery(ListQuery):
    """Which sessions a list has, and the page. All given parameters must match."""

    caller: Annotated[CallerName | None, Field(description=CALLER_FILTER)] = None
    upstream: Annotated[Text | None, Field(description="The name of the upstream.")] = None

    def matches(self, session: HostSession, names: CallerNames | None) -> bool:
        """Whether the list has a session, whose caller operators see under these names."""
        return (self.caller is None or is_caller(self.caller, session.owner.context, names)) and (
            self.upstream is None or session.mount.name == self.upstream
        )


class SessionItem(NamedAnswer):
    """A session of a host, as this replica sees it."""

    session: Annotated[str, Field(description="The reference of the session.")]
    caller: Annotated[str, Field(description="The reference of the caller.")]
    upstream: str
    protocol: Annotated[str, Field(description="The revision of the protocol.")]
    created: Annotated[
        datetime | None, Field(description="When it was opened here; null if another process opened it.")
    ]
    last_used: datetime
    streams: Annotated[int, Field(description="GET streams that are open here.")]
    tasks: Annotated[int, Field(description="Unfinished tasks of the session that run here.")]


class SessionPage(Answer):
    """Sessions, by reference."""

    now: datetime
    replica: Annotated[str, Field(description="The replica that answers.")]
    items: tuple[SessionItem, ...]
    next: Annotated[str | None, Field(description="The `cursor` of the next page.")]


class SessionEnd(Answer):
    """A session that was ended."""

    session: str
    replica: str


class SessionRoutes:
    """The handlers. `replica` is the name of this process."""

    def __init__(
        self, *, sessions: HostSessions, cursors: ListCursors, clock: Clock, access: OperatorAccess, replica: str
    ) -> None:
        self._sessions = sessions
        self._access = access
        self._cursors = cursors
        self._clock = clock
        self._replica = replica

    def routes(self) -> Iterator[Route]:
        """The routes of sessions."""
        yield Route(
            method="GET",
            path="/sessions",
            summary="List sessions",
            description="Sessions of hosts that this replica has in memory. Hosts of revision 2026-07-28 have none.",
            role=Role.VIEWER,
            query=SessionListQuery,
            answer=SessionPage,
            handler=self._list,
        )
        yield Route(
            method="POST",
            path="/sessions/{session}/end",
            summary="End a session",
            description="Ends it at all replicas, as a DELETE of the host does: its streams end, its tasks go on.",
            role=Role.OPERATOR,
            answer=SessionEnd,
            handler=self._end,
            refusals={404: "This replica has no such session in memory."},
        )

    async def _list(self, call: ApiCall) -> SessionPage:
        query: SessionListQuery = call.query
        place = "" if query.cursor is None else str(self._cursors.open(query.cursor, query.listing)[0])
        found = {
            session_reference(each.id): each
            for each in self._sessions.loaded()
            if query.matches(each, self._access.names(each.caller.names))
        }
        references = sorted(reference for reference in found if reference > place)
        page, now = references[: query.limit], self._clock.now()
        return SessionPage(
            now=now,
            replica=self._replica,
            items=tuple(self._item(reference, found[reference], now) for reference in page),
            next=self._cursors.seal([page[-1]], query.listing) if len(references) > query.limit else None,
        )

    async def _end(self, call: ApiCall) -> SessionEnd:
        reference = call.parameters["session"]
        for each in self._sessions.loaded():
            if session_reference(each.id) == reference:
                await self._sessions.end(each)
                return SessionEnd(session=reference, replica=self._replica)
        raise ApiError(404, "session_not_found", "this replica has no such session in memory")

    def _item(self, reference: str, session: HostSession, now: datetime) -> SessionItem:
        unused = 0.0 if session.is_busy else max(0.0, self._clock.elapsed() - session.last_used)
        return SessionItem(
            session=reference,
            caller=caller_reference(session.owner.context),
            **names_of(self._access.names(session.caller.names)),
            upstream=session.mount.name,
            protocol=session.peer.revision.value,
            created=session.opened_at,
            last_used=now - timedelta(seconds=unused),
            streams=len(session.streams),
            tasks=session.running_tasks,
        )


def session_reference(id: str) -> str:
    """The reference of a session: `s_` and 22 characters, the same at each replica."""
    digest = blake2b(id.encode("utf-8", "surrogatepass"), digest_size=18, person=b"session").digest()
    return "s_" + urlsafe_b64encode(digest)[:22].decode()
