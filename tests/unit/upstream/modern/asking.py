"""Calls that come to questions, streams that come to notifications, and what may be said of both."""

import asyncio
import json
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.server import ScriptedServer, note
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from taskgate.protocol.messages import Response
from taskgate.upstream.calls import ServerQuestion
from unit.upstream.houses import Guest

ELICIT = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Which?", "requestedSchema": {"type": "object", "properties": {}}},
}
SAMPLE = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 9}}
ROOTS = {"method": "roots/list"}
ACCEPTED = '{"result":{"action":"accept","content":{"a":1},"_meta":{"x":1}}}'
SAMPLED = '{"result":{"role":"assistant","content":{"type":"text","text":"so"},"model":"m"}}'
DECLINED = '{"error":{"code":-1,"message":"User rejected"}}'
LISTEN = "subscriptions/listen"
CHANGED = note("notifications/tools/list_changed")
ALL_KINDS = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}


class Questioned:
    """A call that has come to so many questions, to be looked at in a block; it is cancelled in the end."""

    def __init__(self, guest: Guest, count: int, *, within: float = 60) -> None:
        self.ear = RecordingListener()
        self._guest, self._count, self._within = guest, count, within

    async def __aenter__(self) -> "Questioned":
        self.call = asyncio.create_task(self._guest.run("asks", ear=self.ear, within=self._within))
        await self.asked(self._count)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.call.cancel()
        await asyncio.wait((self.call,))

    async def asked(self, count: int) -> list[ServerQuestion]:
        await eventually(lambda: len(self.ear.questions) >= count or self.call.done())
        return self.ear.questions

    async def answer(self) -> Response:
        async with bounded():
            return await self.call


def told(server: ScriptedServer) -> list[tuple[Any, Any]]:
    """The answers and the state of every call."""
    found = [each["params"] for each in server.heard("tools/call")]
    return [(params.get("inputResponses"), params.get("requestState")) for params in found]


def value_of(response) -> dict:
    return json.loads(response.text)["result"]


async def failure_of(asking) -> tuple[str, bool]:
    """Reason of a failure, and whether the server may have acted."""
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await asking
    return failed.value.reason, failed.value.dispatched


def updated(uri: str) -> dict[str, Any]:
    return note("notifications/resources/updated", uri=uri)


async def subscribe(guest: Guest, uri: str, verb: str = "subscribe") -> Any:
    async with bounded():
        return await guest.ask(f"resources/{verb}", json.dumps({"uri": uri}))
