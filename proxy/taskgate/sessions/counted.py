"""An upstream that knows how many of its sessions are open, so that it can be let go once nobody needs it.

It also counts the requests that it has not answered yet, for operators. What must not live here: why it is let go, and
what takes its place.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta

from taskgate.domain.versions import Peer
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.messages import Params, Response
from taskgate.sessions.around import AroundSession
from taskgate.upstream.base import Upstream, UpstreamSession, Vitals
from taskgate.upstream.call_listener import CallListener, SessionCallListener
from taskgate.upstream.principal import Principal, PrincipalSource
from taskgate.upstream.resume_points import Resumes


class RequestCounter:
    """How many requests of hosts and calls of tasks are under way, by the name of their upstream.

    What was replaced counts with what took its place, for as long as it still has some.
    """

    def __init__(self) -> None:
        self._under_way: Counter[str] = Counter()
        self._ended: asyncio.Event | None = None

    def read(self) -> dict[tuple[str], int]:
        """How many there are now; names that never had any are not there."""
        return {(name,): count for name, count in self._under_way.items()}

    def begin(self, name: str) -> None:
        """One more."""
        self._under_way[name] += 1

    def end(self, name: str) -> None:
        """One that began has been answered, or given up."""
        self._under_way[name] -= 1
        if self._ended is not None:
            self._ended.set()

    async def idle(self) -> None:
        """Wait until none is under way."""
        self._ended = ended = self._ended or asyncio.Event()
        while self._under_way.total():
            ended.clear()
            await ended.wait()


class CountedUpstream:
    """Hands everything to `inner`, and counts the sessions that are not closed yet; see Upstream."""

    def __init__(self, inner: Upstream, requests: RequestCounter | None = None) -> None:
        self.name = inner.name
        self._inner = inner
        self._requests = requests or RequestCounter()
        self._present: Callable[[], Upstream | None] | None = None
        self._sessions = 0
        self._closing: asyncio.Task[None] | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    def open(self) -> None:
        """See Upstream."""
        self._inner.open()

    def vitals(self) -> Vitals:
        """See Upstream."""
        return self._inner.vitals()

    def session(
        self, listener: SessionCallListener, principal_source: PrincipalSource, host: Peer | None = None
    ) -> UpstreamSession:
        """A new session, which is that of whoever is in its place; see Upstream."""
        present = None if self._present is None else self._present()
        if present is not None:
            return present.session(listener, principal_source, host)
        session = self._inner.session(listener, principal_source, host)
        self._sessions += 1
        self._empty.clear()
        return _CountedSession(session, self._part, self.name, self._requests)

    def yield_to(self, present: Callable[[], Upstream | None]) -> None:
        """Begin no session any more where another has its place: whoever still asks here gets one of that.

        It is asked for each time: to keep each one's successor would keep all that ever were.
        """
        self._present = present

    async def left(self) -> None:
        """Wait until every session that was begun here is closed."""
        await self._empty.wait()

    async def close(self) -> None:
        """See Upstream; its sessions are cut off. Once begun it goes on, though nobody waits for it any more."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._inner.close())
        await asyncio.shield(self._closing)

    def _part(self) -> None:
        self._sessions -= 1
        if not self._sessions:
            self._empty.set()


class _CountedSession(AroundSession):
    """See UpstreamSession. `part` is called once, when it is closed."""

    __slots__ = ("_name", "_part", "_requests")

    def __init__(self, inner: UpstreamSession, part: Callable[[], None], name: str, requests: RequestCounter) -> None:
        super().__init__(inner)
        self._part: Callable[[], None] | None = part
        self._name = name
        self._requests = requests

    async def relay(
        self,
        method: str,
        params: Params | None,
        *,
        listener: CallListener,
        tool: str | None = None,
        principal: Principal | None = None,
        log_level: str | None = None,
        repeated: Mapping[str, str] | None = None,
    ) -> Response:
        self._requests.begin(self._name)
        try:
            return await self._inner.relay(
                method,
                params,
                listener=listener,
                tool=tool,
                principal=principal,
                log_level=log_level,
                repeated=repeated,
            )
        finally:
            self._requests.end(self._name)

    async def run(
        self,
        tool: str,
        params: RawJson,
        *,
        within: timedelta,
        listener: CallListener,
        principal: Principal | None = None,
        log_level: str | None = None,
        repeated: Mapping[str, str] | None = None,
        resumes: Resumes | None = None,
    ) -> Response:
        self._requests.begin(self._name)
        try:
            return await self._inner.run(
                tool,
                params,
                within=within,
                listener=listener,
                principal=principal,
                log_level=log_level,
                repeated=repeated,
                resumes=resumes,
            )
        finally:
            self._requests.end(self._name)

    async def close(self) -> None:
        try:
            await self._inner.close()
        finally:
            part, self._part = self._part, None
            if part is not None:
                part()
