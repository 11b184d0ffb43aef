"""At the level debug, the log says which era is used with a server, since when, and why."""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from helpers.server import ScriptedServer, error, status
from taskgate.errors import UpstreamFailed
from unit.upstream.conftest import Caller

DECIDED = "the era of a server is decided"
LEFT = "a server left its era: the next request finds the era again"


@pytest.fixture
async def dual() -> AsyncIterator[ScriptedServer]:
    """A server of both eras."""
    async with ScriptedServer("both") as server:
        yield server


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[Any, ...]]]:
    """The lines about eras: message, upstream, era, revision and reason."""
    caplog.set_level(logging.DEBUG, "taskgate.upstream")
    names = ("upstream", "era", "revision", "reason")

    def said() -> list[tuple[Any, ...]]:
        found = [record for record in caplog.records if record.getMessage() in (DECIDED, LEFT)]
        return [(record.getMessage(), *(vars(record).get(name) for name in names)) for record in found]

    return said


async def test_a_handshake_of_an_older_revision_decides_once_for_all_sessions(
    server: ScriptedServer, anew, lines
) -> None:
    server.revision = "2025-03-26"
    caller = anew()
    await caller.call()
    other = caller.upstream.session(caller.heard.of_session, lambda: None)
    await other.open()
    await other.close()
    assert lines() == [(DECIDED, "reports", "legacy", "2025-03-26", "older_revision")]


@pytest.mark.parametrize(
    ("capabilities", "discovery", "reason"),
    [
        ({"tasks": {}}, error(-32601, "no"), "own_tasks"),
        ({}, error(-32601, "no"), "not_discovered"),
        ({}, status(503), "unknown"),
    ],
)
async def test_a_server_of_the_legacy_era_has_a_line_with_what_showed_it(
    server: ScriptedServer, anew, lines, capabilities: dict[str, Any], discovery: Any, reason: str
) -> None:
    server.capabilities |= capabilities
    server.sessions = False
    server.methods["server/discover"] = discovery
    await anew().call()
    assert lines() == [(DECIDED, "reports", "legacy", "2025-11-25", reason)]


async def test_a_server_that_leaves_its_era_has_a_line_for_that_and_one_for_the_next(
    dual: ScriptedServer, new_caller_of, lines
) -> None:
    caller: Caller = new_caller_of(dual.url, revision=None)
    await caller.call()
    assert lines() == [(DECIDED, "reports", "both", "2025-11-25", "discovered")]
    dual.methods["server/discover"] = error(-32601, "no")
    other = caller.upstream.session(caller.heard.of_session, lambda: None)
    with pytest.raises(UpstreamFailed):
        await other.open()
    await other.open()
    await other.close()
    assert lines()[1:] == [
        (LEFT, "reports", "modern", None, None),
        (DECIDED, "reports", "legacy", "2025-11-25", "not_discovered"),
    ]


async def test_a_configured_revision_has_a_line_at_the_start(server: ScriptedServer, new_caller_of, lines) -> None:
    caller: Caller = new_caller_of(server.url)
    caller.upstream.open()
    await caller.call()
    assert lines() == [(DECIDED, "reports", "legacy", "2025-11-25", "configured")]


async def test_above_debug_there_is_none(server: ScriptedServer, anew, lines, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "taskgate.upstream")
    await anew().call()
    assert lines() == []
