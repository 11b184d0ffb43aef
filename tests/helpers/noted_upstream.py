"""A server behind its seam that notes what it is asked, for whoever stands between it and the engine."""

from collections.abc import Callable, Coroutine
from typing import Any

from helpers.counted_sessions import counted
from taskgate.domain.versions import Era
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Response
from taskgate.upstream.base import UpstreamSession, Vitals
from taskgate.upstream.calls import UpstreamCall
from taskgate.upstream.session import SessionUsage


def response(text: str = '"result":{}') -> Response:
    message = parse(f'{{"jsonrpc":"2.0","id":1,{text}}}'.encode(), max_depth=16)
    assert isinstance(message, Response)
    return message


class Session:
    """Notes what it is asked. `answer` is what a call comes to."""

    era = Era.MODERN

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.answer: Callable[[], Coroutine[Any, Any, Response]] = self._well

    def __getattr__(self, name: str) -> Any:
        def note(*arguments: Any, **more: Any) -> Any:
            self.asked.append((name, *arguments, more))
            return name

        return note

    async def call(self, call: UpstreamCall, listener: Any) -> Response:
        self.asked.append(("call", call, listener))
        return await self.answer()

    def listed(self, tool: str) -> Any:
        return tool if tool == "add" else None

    async def tools(self) -> Any:
        return {"add": "add"}

    async def open(self) -> Any:
        return "opened"

    async def welcome(self) -> Any:
        return "welcomed"

    async def close(self) -> None:
        self.asked.append(("close",))

    async def _well(self) -> Response:
        return response()


class Server:
    """Gives out one session, and notes that it was opened and closed."""

    name = "reports"

    def __init__(self) -> None:
        self.inner = Session()
        self.told: list[Any] = []

    def open(self) -> None:
        self.told.append("open")

    def vitals(self) -> Vitals:
        return Vitals(up=True, circuit="closed")

    def session(self, listener: Any, principal_source: Any, host: Any = None) -> UpstreamSession:
        return self.counted_session(SessionUsage(self.name), listener, principal_source, host)

    def counted_session(
        self, usage: SessionUsage, listener: Any, principal_source: Any, host: Any = None
    ) -> UpstreamSession:
        self.told.append((listener, host))
        return counted(self.inner, usage)

    async def close(self) -> None:
        self.told.append("close")
