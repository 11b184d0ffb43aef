"""A scripted server of the modern era, and sessions with it that hear everything.

Whatever the sessions say in a test is judged at its end, by the schema and against its headers.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from helpers import modern_schema
from helpers.modern_requests import check_client_message
from helpers.server import ScriptedServer
from taskgate.clock import Clock
from taskgate.domain.versions import Peer, Revision
from taskgate.upstream.calls import Principal
from taskgate.upstream.client import HttpTransport
from unit.upstream.conftest import settings_for
from unit.upstream.houses import Guest, House

LEGACY_HOST = Peer(
    revision=Revision.R2025_11_25,
    capabilities={"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}, "tasks": {"list": {}}},
    info={"name": "host", "version": "1"},
)
"""A host of the legacy era that can be asked whatever there is but for pages to visit."""


NewGuest = Callable[..., Guest]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """A server that does as the protocol says until it is told otherwise; what it was sent is judged in the end."""
    async with ScriptedServer("modern") as server:
        server.capabilities = {"tools": {}}
        yield server
        if modern_schema.available():
            for request in server.requests:
                check_client_message(request.message, serves_tasks=server.serves_tasks)
        assert "mcp-session-id" not in {name for request in server.requests for name in request.headers}


@pytest.fixture
async def new_guest(server: ScriptedServer) -> AsyncIterator[NewGuest]:
    """Makes sessions with the server; they are closed in the end."""
    houses: list[House] = []

    def make(host: Peer | None = LEGACY_HOST, clock: Clock | None = None, **changes: Any) -> Guest:
        settings = settings_for(server.url, revision=None, **changes)
        houses.append(House(HttpTransport(settings), settings, direct=True))
        return houses[-1].modern(host=host, clock=clock)

    yield make
    for house in houses:
        await house.close()


@pytest.fixture
def guest(new_guest: NewGuest) -> Guest:
    """A session of a host of the legacy era that can be asked things."""
    return new_guest()


def somebody(name: str) -> Principal:
    """Somebody to speak for."""
    return Principal(context=name, subject=name)
