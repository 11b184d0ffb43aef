"""What is mounted, again at each reload: made before it is in use, kept where it is the same, let go when it is not."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.manual_clock import ManualClock
from helpers.recording_upstream import RecordingUpstream
from helpers.virtual_time import turns
from helpers.waiting import bounded, eventually
from taskgate import __version__
from taskgate.admission.mounts import MOST_REMEMBERED
from taskgate.admission.rates import QuotaSubjects
from taskgate.admission.rules import RuntimeConfig
from taskgate.config.model import GatewayConfig, admission_rules
from taskgate.lifecycle.task_listener import NOBODY
from taskgate.protocol.discovery import gateway_info
from taskgate.telemetry.events import (
    CircuitChanged,
    ConcurrencyChanged,
    HealthChecked,
    UpstreamAnswered,
    UpstreamRequestFailed,
    UpstreamRetried,
)
from taskgate.telemetry.tracing import NO_TRACING
from taskgate.upstream.calls import Principal
from taskgate.upstream.settings import UpstreamObserver, UpstreamSettings
from taskgate.upstream.wire.trust import TlsFileRefused
from taskgate.wiring.upstreams import UpstreamRegistry
from unit.lifecycle.recorded_events import RecordedEvents

SPEAKER = Principal(context="c")


class Made(RecordingUpstream):
    """A server that remembers what it was made with."""

    def __init__(self, settings: UpstreamSettings, observer: UpstreamObserver) -> None:
        super().__init__()
        self.settings = settings
        self.observer = observer


class Yard:
    """Mounts, and what was made for them. What goes to `refused` cannot be made."""

    refused = "http://refused/mcp"
    broken = "http://broken/mcp"

    def __init__(self) -> None:
        self.made: list[Made] = []
        self.emitted = RecordedEvents()
        first = configured(a="http://a/mcp")
        self.live = RuntimeConfig(admission_rules(first))
        self.upstreams = UpstreamRegistry(
            live=self.live,
            quota_subjects=QuotaSubjects(self.live),
            make=self._make,
            tracing=NO_TRACING,
            event_sink=self.emitted,
            clock=ManualClock(),
            port=8080,
        )

    def _make(self, settings: UpstreamSettings, observer: UpstreamObserver, _clock: Any) -> Made:
        if settings.url == self.broken:
            raise RuntimeError("nobody foresaw that")
        if settings.url == self.refused:
            raise TlsFileRefused("tls.ca_file: holds no certificate in PEM form")
        self.made.append(Made(settings, observer))
        return self.made[-1]

    async def mount(self, config: GatewayConfig) -> bool:
        """Have it from now on; whether anything is new."""
        prepared = await self.upstreams.prepare(config, admission_rules(config))
        self.upstreams.switch(prepared)
        return prepared.is_new

    def begin(self, name: str = "a") -> Any:
        """A session with the server of that name."""
        return self.upstreams.mounts.by_name[name].upstream.session(NOBODY, lambda: SPEAKER)

    def of(self, url: str) -> Made:
        """The server that was made last for a URL."""
        return next(made for made in reversed(self.made) if made.settings.url == url)


def configured(folder: Path | None = None, **urls: str) -> GatewayConfig:
    tls = {} if folder is None else {"tls": {"ca_file": str(folder / "ca.pem")}}
    upstreams = {name: {"path": f"/{name}", "url": url, **tls} for name, url in urls.items()}
    return configuration({}, upstreams=upstreams)


@pytest.fixture
async def yard() -> AsyncIterator[Yard]:
    yard = Yard()
    await yard.mount(configured(a="http://a/mcp"))
    yield yard
    async with bounded():
        await yard.upstreams.close()
    assert [made.asked[-1:] for made in yard.made] == [["close"]] * len(yard.made), "every server is let go in the end"


async def test_what_is_prepared_is_in_use_only_once_it_is_mounted(yard: Yard) -> None:
    before = dict(yard.upstreams.mounts.by_name)
    config = configured(a="http://other/mcp", b="http://b/mcp")
    prepared = await yard.upstreams.prepare(config, admission_rules(config))
    assert (prepared.is_new, yard.upstreams.mounts.by_name) == (True, before)
    assert [made.asked for made in yard.made] == [["open"], [], []]
    yard.upstreams.switch(prepared)
    assert sorted(yard.upstreams.mounts.by_name) == ["a", "b"]
    assert [made.asked[:1] for made in yard.made] == [["open"]] * 3


async def test_what_will_not_be_mounted_is_let_go_and_nothing_else(yard: Yard) -> None:
    config = configured(a="http://a/mcp", b="http://b/mcp")
    await yard.upstreams.discard(await yard.upstreams.prepare(config, admission_rules(config)))
    assert [made.asked for made in yard.made] == [["open"], ["close"]]


async def test_where_one_cannot_be_made_the_others_are_let_go(yard: Yard) -> None:
    config = configured(a="http://a/mcp", b="http://b/mcp", c=yard.refused)
    with pytest.raises(TlsFileRefused, match=r"^upstreams\.c\.tls\.ca_file: holds no certificate in PEM form$"):
        await yard.upstreams.prepare(config, admission_rules(config))
    with pytest.raises(RuntimeError):
        await yard.upstreams.prepare(config := configured(b="http://b/mcp", c=yard.broken), admission_rules(config))
    assert [made.asked for made in yard.made] == [["open"], ["close"], ["close"]]
    assert list(yard.upstreams.mounts.by_name) == ["a"]


async def test_the_same_stays_the_same_and_a_file_with_another_content_does_not(yard: Yard, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("one")
    assert await yard.mount(configured(tmp_path, a="https://a/mcp"))
    mount = yard.upstreams.mounts.by_name["a"]
    assert not await yard.mount(configured(tmp_path, a="https://a/mcp"))
    assert yard.upstreams.mounts.by_name["a"] is mount
    file.write_text("one two")
    assert await yard.mount(configured(tmp_path, a="https://a/mcp"))
    assert yard.upstreams.mounts.by_name["a"] is not mount


async def test_whose_name_hosts_see_may_change_and_the_server_stays(yard: Yard) -> None:
    def named(server_info: str) -> GatewayConfig:
        return configuration({}, upstreams={"a": {"path": "/a", "url": "http://a/mcp", "server_info": server_info}})

    mounts = yard.upstreams.mounts
    assert (mounts.by_name["a"].info, mounts.is_server_named("a"), mounts.is_server_named("b")) == (None, True, False)
    assert await yard.mount(named("gateway"))
    assert (mounts.by_name["a"].info, mounts.is_server_named("a")) == (gateway_info(__version__), False)
    assert await yard.mount(named("upstream"))
    assert mounts.is_server_named("a")
    assert len(yard.made) == 1


async def test_a_request_that_came_before_gets_a_session_with_the_server_of_now(yard: Yard) -> None:
    """It holds the mount of before, which may be let go by the time that it needs a session."""
    mount = yard.upstreams.mounts.by_name["a"]
    await yard.mount(configured(a="http://b/mcp"))
    await eventually(lambda: yard.of("http://a/mcp").asked == ["open", "close"])
    mount.upstream.session(NOBODY, lambda: SPEAKER)
    assert (len(yard.of("http://a/mcp").sessions), len(yard.of("http://b/mcp").sessions)) == (0, 1)


async def test_a_server_is_let_go_when_its_last_session_ends(yard: Yard) -> None:
    session = yard.begin()
    await yard.mount(configured(b="http://b/mcp"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert yard.of("http://a/mcp").asked == ["open"]
    await session.close()
    await eventually(lambda: yard.of("http://a/mcp").asked == ["open", "close"])


async def test_turns_stay_with_an_address_and_another_has_its_own(yard: Yard) -> None:
    bulkhead = yard.upstreams.mounts.by_name["a"].bulkhead
    config = configuration({}, upstreams={"a": {"path": "/a", "url": "http://a/mcp", "timeouts": {"call": "1m"}}})
    await yard.mount(config)
    assert len(yard.made) == 2
    assert yard.upstreams.mounts.by_name["a"].bulkhead is bulkhead
    await yard.mount(configured(a="http://b/mcp"))
    assert yard.upstreams.mounts.by_name["a"].bulkhead is not bulkhead


async def test_how_a_server_is_that_was_replaced_is_not_told_any_more_and_what_it_does_is_counted(yard: Yard) -> None:
    session = yard.begin()
    await yard.mount(configured(a="http://b/mcp"))
    yard.emitted.all.clear()
    for made in yard.made:
        made.observer.circuit("open", "timeout", True)
        made.observer.failed("tools/call", "refused", "HTTP 401", False)
        made.observer.health(False, False, "HTTP 502")
        made.observer.retried("connect")
        made.observer.answered("tools/call", 0.5, None, False)
    states = [
        CircuitChanged("a", "open", "timeout"),
        UpstreamRequestFailed("a", "tools/call", "refused", "HTTP 401"),
        HealthChecked("a", False, False, "HTTP 502"),
    ]
    answered, retried = UpstreamAnswered("a", "tools/call", 0.5, None), UpstreamRetried("a", "connect")
    assert yard.emitted.all == [retried, answered._replace(is_replaced=True), *states, retried, answered]
    await session.close()


async def test_who_is_not_mounted_is_not_used_at_all(yard: Yard) -> None:
    mounts = yard.upstreams.mounts
    yard.upstreams.mounts.by_name["a"].bulkhead.acquire("c")
    assert mounts.utilization("a") > 0
    assert mounts.utilization("b") == 0
    assert ("/a" in mounts.paths, "/b" in mounts.paths) == (True, False)


async def test_what_was_let_go_is_forgotten_however_often_that_happens(yard: Yard) -> None:
    """Though what was mounted first is still held, by a session of a host, and every path is another."""
    held, session = yard.upstreams.mounts.by_name["a"], yard.begin()
    were: list[weakref.ref[Any]] = []
    for turn in range(50):
        upstreams = {"a": {"path": "/a", "url": f"http://a{turn}/mcp"}, "b": {"path": f"/b{turn}", "url": "http://b/"}}
        await yard.mount(configuration({}, upstreams=upstreams))
        were.append(weakref.ref(yard.upstreams.mounts.by_name["a"].upstream))
    present = yard.upstreams.mounts.by_name["a"].upstream
    # The first one, in which the session is.
    await turns(300)
    gc.collect()
    assert [upstream() for upstream in were if upstream() is not None] == [present]
    assert len(yard.upstreams.mounts.by_path) <= 2 * 2 + 2 * MOST_REMEMBERED
    assert yard.upstreams.mounts.by_path["/b48"].path == "/b48", "who was let in before goes on"
    held.upstream.session(NOBODY, lambda: SPEAKER)
    assert [len(made.sessions) for made in yard.made if made.sessions] == [1, 1]
    await session.close()


async def test_turns_that_are_taken_are_found_again_by_a_server_that_comes_back(yard: Yard) -> None:
    """Else what is taken back in the file would let twice as many calls go to it as it is to have at once."""
    bulkhead, other = yard.upstreams.mounts.by_name["a"].bulkhead, configured(b="http://b/mcp")
    ticket = bulkhead.acquire("c")
    await yard.mount(configured(a="http://other/mcp"))
    await yard.mount(other)
    for back in (configured(a="http://a/mcp"), other, configured(a="http://a/mcp")):
        await yard.mount(back)
    assert yard.upstreams.mounts.by_name["a"].bulkhead is bulkhead
    yard.emitted.all.clear()
    ticket.release()
    await eventually(lambda: ConcurrencyChanged("a", 0, 32, 0) in yard.emitted.all)
    session = yard.begin()
    for _ in range(2):
        await yard.mount(other)
        await yard.mount(configured(b="http://c/mcp"))
    await yard.mount(configured(a="http://a/mcp"))
    assert yard.upstreams.mounts.by_name["a"].bulkhead is bulkhead, "a session may take turns again"
    await yard.mount(other)
    await session.close()
    await turns()
    await yard.mount(configured(b="http://c/mcp"))
    await yard.mount(configured(a="http://a/mcp"))
    assert yard.upstreams.mounts.by_name["a"].bulkhead is not bulkhead, "nobody needs it any more"


async def test_a_program_stays_as_long_as_it_is_run_with_the_same_and_its_turns_as_long_as_the_command_is(
    yard: Yard,
) -> None:
    def programs(**keys: Any) -> GatewayConfig:
        return configuration({}, upstreams={"a": {"path": "/a", "transport": "stdio", "command": ["a"], **keys}})

    assert await yard.mount(programs(env={"A": "1"}))
    mount = yard.upstreams.mounts.by_name["a"]
    assert not await yard.mount(programs(env={"A": "1"}))
    assert await yard.mount(programs(env={"A": "2"})), "its processes have the other value in their environment"
    assert yard.upstreams.mounts.by_name["a"].upstream is not mount.upstream
    assert yard.upstreams.mounts.by_name["a"].bulkhead is mount.bulkhead
    assert await yard.mount(programs(command=["a", "b"], env={"A": "2"}))
    assert yard.upstreams.mounts.by_name["a"].bulkhead is not mount.bulkhead
