"""Whose whatever is sent is."""

from dataclasses import replace
from typing import Any, cast

from taskgate.upstream.base import Incoming, Outgoing
from taskgate.upstream.calls import Principal
from taskgate.upstream.session import SessionTransport

ALICE, BOB = Principal(context="alice"), Principal(context="bob")


class Noted:
    """A transport that remembers what it was given."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []
        self.is_closed = False

    async def send(self, outgoing: Outgoing) -> Incoming:
        self.sent.append(outgoing)
        return cast("Any", "answered")

    async def close(self) -> None:
        self.is_closed = True


async def test_what_is_nobodys_is_of_whom_the_session_speaks_for_now() -> None:
    inner, speaking = Noted(), [ALICE]
    transport = SessionTransport(inner, None, lambda: speaking[-1], asks_whose=True)
    outgoing = Outgoing(verb="POST", headers={}, body=b"{}")
    assert cast("Any", await transport.send(outgoing)) == "answered"
    speaking.append(BOB)
    await transport.send(outgoing)
    assert inner.sent == [replace(outgoing, principal=ALICE), replace(outgoing, principal=BOB)]


async def test_what_is_somebodys_stays_theirs() -> None:
    inner = Noted()
    outgoing = Outgoing(verb="POST", headers={}, principal=BOB)
    await SessionTransport(inner, None, lambda: ALICE, asks_whose=True).send(outgoing)
    assert inner.sent == [outgoing]


async def test_a_session_that_ends_leaves_the_ways_of_the_others() -> None:
    inner = Noted()
    await SessionTransport(inner, None, lambda: ALICE, asks_whose=True).close()
    assert not inner.is_closed
