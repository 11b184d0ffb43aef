"""A stream that is listened to for everybody is nobody's, whoever's wish opened it."""

from contextvars import ContextVar

import pytest

from helpers.server import ScriptedServer
from helpers.waiting import eventually
from taskgate.upstream.base import Incoming, Outgoing
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import ALL_KINDS, subscribe

REQUEST: ContextVar[str] = ContextVar("request", default="nobody's")
"""Stands for whatever goes along with a request."""


async def test_the_stream_that_tells_of_resources(
    server: ScriptedServer, guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.capabilities = ALL_KINDS
    await guest.session.open()
    listening, send = list[str](), guest.transport.send

    async def sending(outgoing: Outgoing) -> Incoming:
        if outgoing.only_listens:
            listening.append(REQUEST.get())
        return await send(outgoing)

    monkeypatch.setattr(guest.transport, "send", sending)
    REQUEST.set("Alice's")
    await subscribe(guest, "a:b")
    await eventually(lambda: listening)
    assert set(listening) == {"nobody's"}
