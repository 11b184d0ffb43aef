"""An upstream and its sessions that record what they are asked, in place of a server."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

from helpers.welcomes import unheard_welcome
from taskgate.domain.versions import Era, Peer
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Response
from taskgate.upstream.base import UpstreamSession, Vitals
from taskgate.upstream.calls import PrincipalSource, UpstreamCall
from taskgate.upstream.health import QUIET
from taskgate.upstream.session import Makers, ServerSession, SessionUsage


def response(text: str = '"result":{}') -> Response:
    """A response with that member."""
    message = parse(f'{{"jsonrpc":"2.0","id":1,{text}}}'.encode(), max_depth=16)
    assert isinstance(message, Response)
    return message


class RecordingSession:
    """A session. `asked` has the name and arguments of each method that was called; `answer` is what a call comes to.

    A close waits for `may_close`, and raises `fault` if there is one; `closes` counts those that ended.
    """

    era = Era.MODERN

    def __init__(
        self, listener: Any = None, principal_source: PrincipalSource | None = None, host: Peer | None = None
    ) -> None:
        self.listener, self.principal_source, self.host = listener, principal_source, host
        self.asked: list[tuple[Any, ...]] = []
        self.answer: Callable[[], Awaitable[Any]] = self._answer
        self.may_close = asyncio.Event()
        self.may_close.set()
        self.fault: Exception | None = None
        self.closes = 0

    def recorded(self, name: str) -> list[Any]:
        """The first arguments of the calls of that method."""
        return [arguments[0] for method, *arguments in self.asked if method == name]

    async def call(self, call: UpstreamCall, listener: Any) -> Any:
        self.asked.append(("call", call, listener))
        return await self.answer()

    def outcome(self, response: Any) -> Any:
        self.asked.append(("outcome", response))
        return "outcome"

    def tell(self, notification: Any) -> None:
        self.asked.append(("tell", notification))

    async def listen_for(self, changes: frozenset[str]) -> frozenset[str]:
        self.asked.append(("listen_for", changes))
        return changes

    def grants(self, filters: frozenset[str]) -> frozenset[str]:
        self.asked.append(("grants", filters))
        return filters

    def listed(self, tool: str) -> Any:
        return tool if tool == "add" else None

    async def tools(self, wanted: str | None = None) -> Any:
        return {"add": "add"}

    async def open(self) -> Any:
        return "opened"

    async def welcome(self) -> Any:
        return "welcomed"

    async def close(self) -> None:
        await self.may_close.wait()
        self.asked.append(("close",))
        self.closes += 1
        if self.fault is not None:
            raise self.fault

    async def _answer(self) -> Response:
        return response()


class RecordingUpstream:
    """An upstream. `sessions` are all that it made, as `make_session` makes them; `asked` has its opens and closes."""

    name = "reports"

    def __init__(self, make_session: Callable[..., RecordingSession] = RecordingSession) -> None:
        self.make_session = make_session
        self.sessions: list[RecordingSession] = []
        self.asked: list[str] = []

    def open(self) -> None:
        self.asked.append("open")

    def vitals(self) -> Vitals:
        return Vitals(up=True, circuit="closed")

    def session(self, listener: Any, principal_source: PrincipalSource, host: Peer | None = None) -> RecordingSession:
        self.sessions.append(self.make_session(listener, principal_source, host))
        return self.sessions[-1]

    def counted_session(
        self, usage: SessionUsage, listener: Any, principal_source: PrincipalSource, host: Peer | None = None
    ) -> UpstreamSession:
        """A session whose usage counts, around one that records."""
        inner = self.session(listener, principal_source, host)
        nothing = cast("Any", None)
        makers = Makers(legacy=nothing, modern=lambda _: cast("Any", inner))
        return ServerSession(
            Era.MODERN,
            nothing,
            host=None,
            upstream_context=cast("Any", SimpleNamespace(observer=QUIET)),
            makers=makers,
            welcome=unheard_welcome(),
            usage=usage,
        )

    def renew(self, settings: Any) -> None:
        self.asked.append("renew")

    async def close(self) -> None:
        self.asked.append("close")
