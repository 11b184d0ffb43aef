"""What becomes of a line when its server is mounted anew: it goes on, or ends with what goes over it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.manual_clock import ManualClock
from helpers.recording_upstream import RecordingUpstream
from helpers.records import new_peer
from helpers.waiting import bounded, eventually
from taskgate.auth.context import ANONYMOUS
from taskgate.domain.versions import Peer, Revision
from taskgate.gateway.extensions import DeniedExtensions
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.sessions.session_pool import LONGEST_INFO, SessionPool
from unit.lifecycle.recorded_events import RecordedEvents


def mounted(server: Any, info: str | None = None) -> Any:
    """A mount of a server, whose hosts are told `info` of it."""
    return SimpleNamespace(name="reports", upstream=server, extensions=ExtensionPolicy(), info=info)


@pytest.fixture
async def lines() -> AsyncIterator[SessionPool]:
    lines = SessionPool(
        clock=ManualClock(), idle=timedelta(minutes=5), report_host=DeniedExtensions(RecordedEvents()).of_host
    )
    yield lines
    await lines.close()


async def test_a_line_to_the_same_server_goes_on_at_the_new_mount(lines: SessionPool) -> None:
    one = RecordingUpstream()
    old, new = mounted(one), mounted(one)
    line = lines.take(old, ANONYMOUS, new_peer())
    assert lines.take(new, ANONYMOUS, new_peer()) is line
    assert line.mount is new


async def test_an_idle_line_to_a_server_that_is_spoken_to_in_another_way_ends_at_once(lines: SessionPool) -> None:
    line: Any = lines.take(mounted(RecordingUpstream()), ANONYMOUS, new_peer())
    assert lines.take(mounted(RecordingUpstream()), ANONYMOUS, new_peer()) is not line
    await eventually(lambda: line.upstream.closes)


async def test_a_busy_one_is_not_cut_and_ends_when_nothing_goes_over_it(lines: SessionPool) -> None:
    line: Any = lines.take(mounted(RecordingUpstream()), ANONYMOUS, new_peer())
    with line:
        other = lines.take(mounted(RecordingUpstream()), ANONYMOUS, new_peer())
        assert other is not line
        lines.sweep()
        # Whatever is closed is so in the background.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not line.upstream.closes
    lines.sweep()
    await eventually(lambda: line.upstream.closes)
    assert not other.upstream.closes  # type: ignore[attr-defined]


async def test_at_the_end_what_is_still_busy_is_closed_too(lines: SessionPool) -> None:
    line: Any = lines.take(mounted(RecordingUpstream()), ANONYMOUS, new_peer())
    line.acquire()
    lines.take(mounted(RecordingUpstream()), ANONYMOUS, new_peer())
    async with bounded():
        await lines.close()
    assert line.upstream.closes


# --- who its server is


def who(revision: Revision, info: str | None) -> ServerDescription:
    """A server of that revision that says that it is that."""
    peer = Peer(revision=revision, capabilities={}, info={})
    return ServerDescription(peer=peer, capabilities="{}", instructions=None, info=info)


async def test_a_line_tells_who_a_server_of_sessions_is_once_that_is_known(lines: SessionPool) -> None:
    line = lines.take(mounted(RecordingUpstream()), ANONYMOUS, new_peer())
    assert line.info is None
    line.met(who(Revision.R2025_06_18, "{1}"))
    assert line.info == "{1}"
    line.met(who(Revision.R2025_11_25, None))
    assert line.info is None


@pytest.mark.parametrize(
    "said", [(Revision.R2026_07_28, "{1}"), (Revision.R2025_11_25, "x" * (LONGEST_INFO + 1))], ids=["says", "long"]
)
async def test_a_line_tells_nothing_of_a_server_that_says_so_itself_or_says_much(
    lines: SessionPool, said: tuple[Revision, str]
) -> None:
    line = lines.take(mounted(RecordingUpstream()), ANONYMOUS, new_peer())
    line.met(who(Revision.R2025_11_25, "x" * LONGEST_INFO))
    assert line.info == "x" * LONGEST_INFO
    line.met(who(*said))
    assert line.info is None


async def test_a_line_tells_what_its_mount_tells_first(lines: SessionPool) -> None:
    one = RecordingUpstream()
    line = lines.take(mounted(one, "ours"), ANONYMOUS, new_peer())
    line.met(who(Revision.R2025_11_25, "theirs"))
    assert line.info == "ours"
    lines.take(mounted(one), ANONYMOUS, new_peer())
    assert line.info == "theirs"
    lines.take(mounted(one, "ours"), ANONYMOUS, new_peer())
    assert line.info == "ours"
