"""Upstream sessions of another process, resumed here with their calls: `Adoptions`, `Adopting`.

After a takeover, the calls of one server session come here one by one, as `Resumed`. `Adoptions`
shares one connection (`Talk`) between those of the same auth context and session; `Adopting` is the
part of one `HttpSession`. `beginning.Beginnings.adopt` makes the connection.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from taskgate.errors import UpstreamFailed
from taskgate.protocol.messages import Response
from taskgate.upstream import failures
from taskgate.upstream.calls import Call, UpstreamContext, UpstreamRequest
from taskgate.upstream.legacy.talk import Talk
from taskgate.upstream.resume_points import Resumed, ResumePoint
from taskgate.upstream.single import SingleFlight


class _Key(NamedTuple):
    """Auth context of the calls, and session id at the server."""

    context: str
    session: str


class Adopted:
    """One resumed server session, shared by its users."""

    __slots__ = ("_adoptions", "_key", "_users", "talk")

    def __init__(self, talk: Talk, adoptions: "Adoptions", key: _Key | None) -> None:
        self.talk = talk
        self._adoptions = adoptions
        self._key = key
        self._users = 0

    def use(self) -> None:
        """Count one more user, until it calls `give_back`."""
        self._users += 1

    def forget(self) -> None:
        """Give it to no further user: the server no longer knows the session."""
        if self._key is not None:
            self._adoptions.forget(self._key, self)

    async def give_back(self, resumed: Resumed) -> None:
        """End it after its last user here; the server is told if no other process uses the session."""
        self._users -= 1
        if self._users:
            return
        self.forget()
        if not await resumed.is_last():
            self.talk.conversation.leave()
        await self.talk.end()


class Adoptions:
    """All resumed sessions with one server."""

    def __init__(self) -> None:
        self._shared: dict[_Key, Adopted] = {}

    def take(self, resumed: Resumed, adopt: Callable[[ResumePoint], Talk]) -> Adopted:
        """Return the session of a resume point for one user; `adopt` makes it if the context has
        none yet."""
        session = resumed.resume_point.session
        # Without a session id there is nothing to share.
        key = None if session is None else _Key(resumed.context, session)
        found = None if key is None else self._shared.get(key)
        if found is None:
            found = Adopted(adopt(resumed.resume_point), self, key)
            if key is not None:
                self._shared[key] = found
        found.use()
        return found

    def forget(self, key: _Key, adopted: Adopted) -> None:
        """Remove the entry; later callers do not find it."""
        if self._shared.get(key) is adopted:
            del self._shared[key]


class Adopting:
    """Resumption of calls in one session: `talk` has its connection, `adopt` makes one from a
    resume point."""

    def __init__(
        self,
        upstream_context: UpstreamContext,
        adoptions: Adoptions,
        *,
        talk: SingleFlight[Talk],
        adopt: Callable[[ResumePoint], Talk],
    ) -> None:
        self._upstream_context = upstream_context
        self._adoptions = adoptions
        self._talk = talk
        self._adopt = adopt
        self._adopted: Adopted | None = None
        self._resumed: Resumed | None = None

    async def go_on(self, errand: UpstreamRequest, resumed: Resumed) -> Response:
        """Resume a call of another process and return its answer. Raises UpstreamFailed: Gone if it
        is lost.

        `errand` is the call as this process would send it; it is not sent.
        """
        try:
            return await self._taken_up(errand, self.stand(resumed), resumed)
        except UpstreamFailed as failure:
            raise failures.sent(failure) from None

    def stand(self, resumed: Resumed) -> Talk:
        """Return the connection in which the call was made; the session uses it from now on. Raises
        Gone."""
        if self._talk.is_empty:
            self._adopted, self._resumed = self._adoptions.take(resumed, self._adopt), resumed
            self._talk.put(self._adopted.talk)
        talk = self._talk.value
        if talk is None or talk.conversation.session != resumed.resume_point.session:
            raise failures.Gone
        return talk

    def lost(self) -> None:
        """Forget the session: the server no longer knows it."""
        adopted, self._adopted = self._adopted, None
        if adopted is not None:
            adopted.forget()

    async def gave_back(self, talk: Talk) -> bool:
        """End the use of a connection if it was adopted; returns whether it was."""
        adopted, resumed, self._adopted = self._adopted, self._resumed, None
        if adopted is None or resumed is None or adopted.talk is not talk:
            return False
        await adopted.give_back(resumed)
        return True

    async def _taken_up(self, errand: UpstreamRequest, talk: Talk, resumed: Resumed) -> Response:
        """Read on the stream of a call after its resume point."""
        resume_point = resumed.resume_point
        if resume_point.event is None or resume_point.request is None:
            raise failures.Gone
        call = Call(resume_point.request, errand.listener, errand.bounds, principal=errand.principal)
        call.is_lasting = True
        began = asyncio.get_running_loop().time()
        error: str | None = "cancelled"
        try:
            response = await talk.conversation.take_up(call, resume_point.event, resumed.asked)
            error = None if response.error is None else str(response.error_code)
        except UpstreamFailed as failure:
            error = failure.reason
            raise
        finally:
            self._upstream_context.observer.answered(errand.method, asyncio.get_running_loop().time() - began, error)
        if self._upstream_context.dialect.url_questions(response, talk.conversation.host):
            # It is unknown whether the call was sent again after its host had visited the URL.
            raise failures.Gone
        return response
