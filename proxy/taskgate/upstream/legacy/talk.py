"""An open connection to a legacy server: `Talk`, a conversation with its GET stream and pings.

The gateway's own requests are pings to see whether the server still takes part, `logging/setLevel`,
and the settings that are restored in a new session. `HttpSession` has one `Talk` at a time.
"""

import asyncio
from datetime import timedelta
from typing import Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.vocabulary import LOG_LEVELS, LOGGING_SET_LEVEL, MODERN_ERRORS, PING, RESOURCES_SUBSCRIBE
from taskgate.upstream.calls import Call, UpstreamContext
from taskgate.upstream.failures import Unwelcome
from taskgate.upstream.lasting import Lasting, level_params, uri_params
from taskgate.upstream.legacy.conversation import Conversation
from taskgate.upstream.legacy.listening import ServerStream
from taskgate.upstream.patience import briefly
from taskgate.upstream.principal import Principal
from taskgate.upstream.single import Abandoned, SingleFlight

SIGN_OF_LIFE: Final = timedelta(seconds=2)
"""Time for a server to answer a request of the gateway itself."""

DYING: Final = 0.1
"""Seconds after a cancellation in which a server may be ending its session."""
_OVER: Final = frozenset({UpstreamReason.CLOSED.value, UpstreamReason.SESSION_LOST.value})


class Talk:
    """An open conversation; `stream` is None if it has no GET stream."""

    __slots__ = (
        "_again",
        "_alive",
        "_level",
        "_levelling",
        "_outliving",
        "_upstream_context",
        "conversation",
        "makes_tasks",
        "outlived",
        "stream",
    )  # fmt: skip

    def __init__(
        self, upstream_context: UpstreamContext, conversation: Conversation, stream: ServerStream | None
    ) -> None:
        self._upstream_context = upstream_context
        self.conversation = conversation
        self.stream = stream
        self.makes_tasks = upstream_context.dialect.tasks.is_supported(conversation.server.peer)
        """Whether the server makes tasks of calls on request."""
        self._alive = SingleFlight(self._ping)
        self._outliving = SingleFlight(self._outlives)
        self.outlived = 0
        """How many cancellations the conversation is known to have survived; see
        `outlives_cancels`."""
        logs = isinstance(conversation.server.peer.capabilities.get("logging"), dict)
        self._level = len(LOG_LEVELS) if logs else 0
        self._levelling = asyncio.Lock()
        self._again: asyncio.Task[None] | None = None

    async def log_from(self, level: str, principal: Principal | None) -> None:
        """Ask the server to log from `level` on, unless it already logs as much.

        The server has a short time to agree; a refusal is ignored. A server without logging is not
        asked.
        """
        place = LOG_LEVELS.index(level)
        if place >= self._level:
            return
        async with self._levelling:
            if place < self._level:
                await self._answers(LOGGING_SET_LEVEL, level_params(level), principal)
                self._level = place

    def ask_again(self, lasting: Lasting) -> None:
        """Restore the host's settings from earlier connections in the background. Refusals are
        ignored."""
        if lasting.level is not None or lasting.uris:
            self._again = asyncio.get_running_loop().create_task(self._ask_again(lasting))

    async def is_over(self, failure: UpstreamFailed) -> bool:
        """Whether a failure is the end of the conversation: by its reason, or by one ping for all
        calls.

        Released servers let a session die without notice, for example after a cancellation: then
        every call of it breaks off.
        """
        if failure.reason != UpstreamReason.CLOSED.value:
            return failure.reason == UpstreamReason.SESSION_LOST.value
        try:
            return not await self._alive.get()
        except Abandoned:
            return False
        finally:
            self._alive.forget()

    async def outlives_cancels(self) -> bool:
        """Whether the server survived all cancellations so far; one ping for all calls.

        Servers on released SDKs accept a cancellation and let the whole session die without notice.
        """
        while self.outlived != self.conversation.cancels:
            try:
                if not await self._outliving.get():
                    return False
            except Abandoned:
                return True
            finally:
                self._outliving.forget()
        return True

    async def is_understood(self) -> bool:
        """Whether the server answers a ping as a legacy server does, or nothing contradicts that."""
        try:
            call, response = await self._ask(PING, None)
        except UpstreamFailed as failure:
            return not isinstance(failure, Unwelcome) and failure.reason != UpstreamReason.SESSION_LOST.value
        return not is_strange(call, response)

    async def end(self) -> None:
        """Close the connection and end the session at the server."""
        await self._fall_silent()
        await self.conversation.end()

    async def drop(self) -> None:
        """Close a connection whose session the server no longer knows."""
        await self._fall_silent()
        await self.conversation.drop()

    async def _fall_silent(self) -> None:
        """Stop the pings, the restoring of settings and the GET stream."""
        await self._alive.close()
        await self._outliving.close()
        if self._again is not None:
            self._again.cancel()
            await asyncio.wait((self._again,))
        if self.stream is not None:
            await self.stream.close()

    async def _outlives(self) -> bool:
        """Wait for cancellations to be sent, then ping."""
        cancels = self.conversation.cancels
        await self.conversation.said(SIGN_OF_LIFE.total_seconds())
        # Some servers crash on a request that arrives while a session dies of a cancellation.
        if asyncio.get_running_loop().time() - self.conversation.cancelled_at < SIGN_OF_LIFE.total_seconds():
            await asyncio.sleep(DYING)
        is_alive = await self._ping()
        self.outlived = cancels
        return is_alive

    async def _ping(self) -> bool:
        return await self._answers(PING, None)

    async def _answers(self, method: str, params: Params | None, principal: Principal | None = None) -> bool:
        """Send a request; returns whether the server answers, or at least does not end the
        conversation."""
        try:
            await self._ask(method, params, principal)
        except UpstreamFailed as failure:
            return failure.reason not in _OVER
        return True

    async def _ask(
        self, method: str, params: Params | None, principal: Principal | None = None
    ) -> tuple[Call, Response]:
        upstream_context = self._upstream_context
        call = Call(next(upstream_context.ids), None, briefly(SIGN_OF_LIFE), principal=principal)
        message = upstream_context.dialect.call(call.id, method, params)
        return call, await self.conversation.ask(call, message, first_byte=SIGN_OF_LIFE)

    async def _ask_again(self, lasting: Lasting) -> None:
        if lasting.level is not None:
            await self._answers(LOGGING_SET_LEVEL, level_params(lasting.level))
        for uri in tuple(lasting.uris):
            # The host may have unsubscribed meanwhile.
            if uri in lasting.uris and not await self._answers(RESOURCES_SUBSCRIBE, uri_params(uri)):
                return


def is_strange(call: Call, response: Response) -> bool:
    """Whether a legacy server would hardly answer like that: a modern one refuses by HTTP status
    and code."""
    return response.error is not None and (call.was_refused or response.error_code in MODERN_ERRORS)
