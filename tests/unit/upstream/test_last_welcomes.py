"""What is kept of what servers say of themselves: the newest, by whom it is for, and never much."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from helpers.memory_kept import memory_kept
from taskgate.domain.versions import Era, Peer, Revision
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import ServerDescription
from taskgate.upstream import failures
from taskgate.upstream.descriptions import MOST_BYTES, LastWelcomes, Welcome, key_of, knows_callers
from taskgate.upstream.settings import (
    FixedHeader,
    GrantKind,
    GrantSettings,
    IdentityHeaders,
    StdioSettings,
    UpstreamSettings,
)

SECOND = timedelta(seconds=1)
GRANT = {"token_url": "https://x.example", "client_id": "c", "client_secret": "s"}
PROGRAM: dict[str, Any] = {"command": ("p",), "processes": 1, "idle": SECOND, "backoff": SECOND, "max_backoff": SECOND}


def server(
    instructions: str = '"Do"', capabilities: str = "{}", revision: Revision = Revision.R2025_11_25
) -> ServerDescription:
    peer = Peer(revision=revision, capabilities={}, info={})
    return ServerDescription(peer=peer, capabilities=capabilities, instructions=instructions)


def settings(**changes: Any) -> UpstreamSettings:
    bounds: dict[str, Any] = {"connect": SECOND, "first_byte": SECOND, "idle": None, "call": SECOND, "max_result": 1}
    return UpstreamSettings(**({"name": "reports"} | bounds | changes))


def test_the_newest_is_kept_for_each() -> None:
    kept = LastWelcomes()
    for key, said in ((b"a", '"1"'), (b"b", '"2"'), (b"a", '"3"')):
        kept.keep(key, server(said))
    assert [getattr(kept.find(key), "instructions", None) for key in (b"a", b"b", b"c")] == ['"3"', '"2"', None]


def test_what_was_not_asked_for_the_longest_goes_first() -> None:
    kept = LastWelcomes(most=2)
    kept.keep(b"a", server())
    kept.keep(b"b", server())
    assert kept.find(b"a") is not None
    kept.keep(b"c", server())
    assert [kept.find(key) is not None for key in (b"a", b"b", b"c")] == [True, False, True]


def test_they_are_bounded_by_what_they_take_together() -> None:
    kept = LastWelcomes(most_bytes=100_000)
    kept.keep(b"a", server("x" * 60_000))
    kept.keep(b"b", server("x" * 60_000))
    assert (kept.find(b"a"), kept.find(b"b") is not None) == (None, True)
    # What replaces another takes its place.
    kept.keep(b"b", server())
    kept.keep(b"c", server("x" * 60_000))
    assert (kept.find(b"b") is not None, kept.find(b"c") is not None) == (True, True)
    # Capabilities are kept as a tree, too.
    kept.keep(b"d", server(capabilities="x" * 4_000))
    assert kept.find(b"d") is None


def test_one_that_is_too_large_leaves_nothing_of_the_one_before() -> None:
    kept = LastWelcomes(most_bytes=100_000)
    kept.keep(b"a", server())
    kept.keep(b"a", server("x" * 100_000))
    assert kept.find(b"a") is None


@pytest.mark.thorough
@pytest.mark.parametrize("size", [10, 10_000, 1_000_000])
def test_however_much_is_said_no_more_is_kept_than_may_be(size: int) -> None:
    kept = LastWelcomes()

    def say() -> None:
        for number in range(min(4_000, 8 * MOST_BYTES // size)):
            kept.keep(b"%d" % number, server(f'"{number} {"x" * size}"'))

    assert memory_kept(say) < MOST_BYTES


def test_a_key_has_the_era_what_is_declared_and_who_asks() -> None:
    keys = [
        key_of(Era.LEGACY, "a", "b", caller=None),
        key_of(Era.MODERN, "a", "b", caller=None),
        key_of(Era.LEGACY, "b", "a", caller=None),
        key_of(Era.LEGACY, "ab", "", caller=None),
        key_of(Era.LEGACY, "a\0b", caller=None),
        key_of(Era.LEGACY, "a", "b", caller=""),
        key_of(Era.LEGACY, "a", "b", caller="alice"),
        key_of(Era.LEGACY, "a", "b", caller="bob"),
        key_of(Era.LEGACY, "a", "\ud800", caller=None),
    ]
    assert len(set(keys)) == len(keys)
    assert key_of(Era.LEGACY, "a", "b", caller="alice") == keys[6]


KNOWS: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing shown": ({}, False),
    "a header": ({"credentials": FixedHeader(name="X", value="s")}, False),
    "a token of the gateway": ({"credentials": GrantSettings(kind=GrantKind.CLIENT_CREDENTIALS, **GRANT)}, False),
    "a token for each": ({"credentials": GrantSettings(kind=GrantKind.TOKEN_EXCHANGE, **GRANT)}, True),
    "a context": ({"identity": IdentityHeaders(context="X")}, True),
    "a subject": ({"identity": IdentityHeaders(subject="X")}, True),
    "a program for each": ({"stdio": StdioSettings(**PROGRAM)}, True),
    "a program for all": ({"stdio": StdioSettings(**PROGRAM, shared=True)}, False),
}


@pytest.mark.parametrize(("changes", "knows"), KNOWS.values(), ids=KNOWS)
def test_some_servers_may_tell_callers_apart(changes: dict[str, Any], knows: bool) -> None:
    assert knows_callers(settings(**changes)) is knows


class Told:
    """One session's welcome, with what a test says of the server."""

    def __init__(self, last: LastWelcomes, era: Era = Era.LEGACY) -> None:
        self.heard: list[ServerDescription] = []
        self.is_down = False
        self.welcome = Welcome(
            last, lambda era: era.encode(), era=era, heard=self.heard.append, is_down=lambda: self.is_down
        )

    async def opened(self, said: ServerDescription | UpstreamFailed, *, stands: bool = False) -> ServerDescription:
        """What hosts are told where to open the session comes to that; `stands` where it was opened before."""

        async def answer() -> ServerDescription:
            if isinstance(said, UpstreamFailed):
                raise said
            if not stands:
                self.welcome.met(said)
            return said

        return await self.welcome.describe(answer())


async def test_the_last_word_of_the_hosts_era_comes_before_that_of_the_other() -> None:
    last, down = LastWelcomes(), failures.unsent(failures.unreachable())
    legacy, modern = server(), server('"Do not"', revision=Revision.R2026_07_28)
    await Told(last).opened(modern)
    assert await Told(last).opened(down) == replace(modern, is_stale=True)
    await Told(last).opened(legacy)
    assert await Told(last).opened(down) == replace(legacy, is_stale=True)
    assert await Told(last, Era.MODERN).opened(down) == replace(modern, is_stale=True)


async def test_after_a_failure_the_last_word_is_told_as_one_of_before() -> None:
    last = LastWelcomes()
    down, refusal = failures.unsent(failures.unreachable()), failures.refused(401)
    with pytest.raises(failures.Down):
        await Told(last).opened(down)
    said, told = server(), Told(last)
    assert await told.opened(said) == said
    assert told.heard == [said]
    assert await Told(last).opened(down) == replace(said, is_stale=True)
    with pytest.raises(UpstreamFailed) as raised:
        await Told(last).opened(refusal)
    assert raised.value is refusal


async def test_a_session_that_stands_tells_whether_its_server_is_known_to_be_down() -> None:
    said, told = server(), Told(LastWelcomes())
    told.is_down = True
    assert await told.opened(said) == said
    assert await told.opened(said, stands=True) == replace(said, is_stale=True)
    told.is_down = False
    assert await told.opened(said, stands=True) == said
