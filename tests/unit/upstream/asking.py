"""Calls whose server asks something on their stream, and what may be said of it."""

import asyncio
from typing import Any, Self

from helpers.recording_listener import RecordingListener
from helpers.server import ScriptedServer, Turn, event, open_stream
from helpers.waiting import eventually
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Notification
from unit.upstream.conftest import Caller

ACCEPTED = '{"result":{"action":"accept"}}'
CANCELLED = {"action": "cancel"}


def question(id_: Any = "q", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": "elicitation/create", "params": params}


def told(text: str) -> Notification:
    notification = parse(text.encode(), max_depth=64)
    assert isinstance(notification, Notification)
    return notification


class Asking:
    """A call whose server asks something on its stream, and then does as the test says."""

    def __init__(self, server: ScriptedServer, caller: Caller, *questions: Any, within: float = 60) -> None:
        self.goes_on: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.ear = RecordingListener()
        self._caller, self._questions = caller, questions or (question(),)
        self._within = within
        server.script["asks"] = self._reply

    async def __aenter__(self) -> Self:
        self.call = asyncio.create_task(self._caller.run("asks", ear=self.ear, within=self._within))
        await eventually(lambda: len(self.ear.questions) == len(self._questions))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.call.cancel()
        await asyncio.wait((self.call,))

    async def _reply(self, turn: Turn) -> Any:
        response = await open_stream(turn.request)
        for each in self._questions:
            await response.write(event(each))
        reply = await asyncio.shield(self.goes_on)
        if reply is None:
            await response.write(event(turn.answer({"content": []})))
            await response.write_eof()
        else:
            turn.request.transport.close()
        return response
