"""Sessions that processes which are gone began at a server, and whose calls go on here: each is one conversation.

A server may have been asked several things in one session, whose calls come here one by one. What must not live here:
how a conversation is begun (`beginning`), and calls that are made here (`session`).
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from taskgate.errors import UpstreamFailed
from taskgate.protocol.envelope import Response
from taskgate.upstream import failures
from taskgate.upstream.calls import Call, UpstreamContext, UpstreamRequest
from taskgate.upstream.legacy.talk import Talk
from taskgate.upstream.resume_points import Resumed, ResumePoint
from taskgate.upstream.single import SingleFlight


class _Key(NamedTuple):
    context: str
    session: str


class Adopted:
    """One such session, for as long as somebody uses it."""

    __slots__ = ("_adoptions", "_key", "_users", "talk")

    def __init__(self, talk: Talk, adoptions: "Adoptions", key: _Key | None) -> None:
        self.talk = talk
        self._adoptions = adoptions
        self._key = key
        self._users = 0

    def use(self) -> None:
        """Somebody more uses it, until they call `give_back`."""
        self._users += 1

    def forget(self) -> None:
        """The server does not know it any more: nobody else is to use it."""
        if self._key is not None:
            self._adoptions.forget(self._key, self)

    async def give_back(self, resumed: Resumed) -> None:
        """End it where nobody uses it here any more; its server hears of that where nobody does anywhere."""
        self._users -= 1
        if self._users:
            return
        self.forget()
        if not await resumed.is_last():
            self.talk.conversation.leave()
        await self.talk.end()


class Adoptions:
    """All of them at one server."""

    def __init__(self) -> None:
        self._shared: dict[_Key, Adopted] = {}

    def take(self, resumed: Resumed, adopt: Callable[[ResumePoint], Talk]) -> Adopted:
        """The session of a foothold, for one use. `adopt` makes it where nobody of the same context has it yet."""
        session = resumed.resume_point.session
        # Who has no session id has nothing that could be shared.
        key = None if session is None else _Key(resumed.context, session)
        found = None if key is None else self._shared.get(key)
        if found is None:
            found = Adopted(adopt(resumed.resume_point), self, key)
            if key is not None:
                self._shared[key] = found
        found.use()
        return found

    def forget(self, key: _Key, adopted: Adopted) -> None:
        """Whoever comes from now on does not find it."""
        if self._shared.get(key) is adopted:
            del self._shared[key]


class Adopting:
    """What of that one session needs, which goes on with a call: `talk` has its conversation, `adopt` makes one."""

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
        """The answer to a call that another process made. Raises UpstreamFailed: Gone where it is not there any more.

        `errand` is that call as this process would make it, which it does not.
        """
        try:
            return await self._taken_up(errand, self.stand(resumed), resumed)
        except UpstreamFailed as failure:
            raise failures.sent(failure) from None

    def stand(self, resumed: Resumed) -> Talk:
        """The conversation in which the call was made, for the whole session from now on. Raises Gone."""
        if self._talk.is_empty:
            self._adopted, self._resumed = self._adoptions.take(resumed, self._adopt), resumed
            self._talk.put(self._adopted.talk)
        talk = self._talk.value
        if talk is None or talk.conversation.session != resumed.resume_point.session:
            raise failures.Gone
        return talk

    def lost(self) -> None:
        """The server does not know that session any more."""
        adopted, self._adopted = self._adopted, None
        if adopted is not None:
            adopted.forget()

    async def gave_back(self, talk: Talk) -> bool:
        """End the use of a conversation that was adopted; whether it was."""
        adopted, resumed, self._adopted = self._adopted, self._resumed, None
        if adopted is None or resumed is None or adopted.talk is not talk:
            return False
        await adopted.give_back(resumed)
        return True

    async def _taken_up(self, errand: UpstreamRequest, talk: Talk, resumed: Resumed) -> Response:
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
        if self._upstream_context.dialect.request_contexts(response, talk.conversation.host):
            # Nobody knows whether it was made again once its host had been there.
            raise failures.Gone
        return response
