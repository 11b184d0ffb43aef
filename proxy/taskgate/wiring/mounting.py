"""The configured upstreams and their mounts: `UpstreamRegistry`. It creates them at the start and
again at each reload, and leaves what is unchanged.

`Reload` calls `prepare`, then `switch` or `discard`. Nothing prepared takes effect before `switch`,
which never fails and never waits. A replaced server is closed after its last session. A mount is
one server under one path, with its concurrency limit.
"""

import asyncio
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from os import stat_result
from pathlib import Path
from typing import Any, Final, NamedTuple

from taskgate import __version__
from taskgate.admission.concurrency import Bulkhead
from taskgate.admission.mounts import Mount, Mounts
from taskgate.admission.quota import QuotaSubjects
from taskgate.admission.rules import AdmissionRules, RuntimeConfig
from taskgate.clock import Clock
from taskgate.config import GatewayConfig
from taskgate.config.settings import bulkhead_settings, upstream_settings
from taskgate.domain.policy import TaskSupport
from taskgate.protocol.discovery import gateway_info
from taskgate.sessions.upstream_usage import CountedUpstream, RequestCounter
from taskgate.system.background import Background
from taskgate.telemetry.events import (
    CircuitChanged,
    ConcurrencyChanged,
    CredentialsFetched,
    Event,
    EventSink,
    HealthChecked,
    ProgramAvailabilityChanged,
    ProgramRestarted,
    ProgramsCounted,
    SessionLost,
    StreamEnded,
    StreamOpened,
    UpstreamAdded,
    UpstreamAnswered,
    UpstreamRetried,
)
from taskgate.upstream.base import Upstream
from taskgate.upstream.settings import UpstreamObserver, UpstreamSettings, UpstreamTls
from taskgate.upstream.wire.trust import TlsFileRefused
from taskgate.wiring.authentication import metadata_url, resource_of

MakeUpstream = Callable[[UpstreamSettings, UpstreamObserver, Clock], Upstream]

_STATES: Final = (ConcurrencyChanged, CircuitChanged, HealthChecked, ProgramAvailabilityChanged, ProgramsCounted)
"""Events with a present state. Those of a replaced server must not be taken for its successor's."""


class UpstreamReport:
    """The event sink of one server. After it was replaced, only countable events pass."""

    def __init__(self, event_sink: EventSink) -> None:
        self._event_sink = event_sink
        self.replaced = False

    def emit(self, event: Event) -> None:
        """Pass an event on, unless it is the state of a replaced server."""
        if not (self.replaced and isinstance(event, _STATES)):
            self._event_sink.emit(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """A server, and what it was created from."""

    settings: UpstreamSettings
    files: "_Files"
    upstream: CountedUpstream
    report: UpstreamReport


class _Turns(NamedTuple):
    """The concurrency limit of a server at a place, its address or command."""

    place: tuple[str, ...]
    bulkhead: Bulkhead
    report: UpstreamReport


_Turnstile = tuple[str, tuple[str, ...]]
"""The key of a concurrency limit: the name of a server, and its place."""


class _Berth(NamedTuple):
    """A mount with its server and its concurrency limit."""

    mount: Mount
    server: _Server
    turns: _Turns


class PreparedMounts(NamedTuple):
    """The mounts of a configuration, not yet in use. `is_new` is whether anything differs from
    before.
    """

    config: GatewayConfig
    berths: Mapping[str, _Berth]
    is_new: bool


class UpstreamRegistry:
    """The servers and mounts of a gateway."""

    def __init__(
        self,
        *,
        live: RuntimeConfig,
        standings: QuotaSubjects,
        make: MakeUpstream,
        event_sink: EventSink,
        clock: Clock,
        port: int,
    ) -> None:
        """`port` is the public listener's."""
        self.mounts = Mounts()
        self.requests = RequestCounter()
        self._live = live
        self._standings = standings
        self._make = make
        self._event_sink = event_sink
        self._clock = clock
        self._port = port
        self._berths: Mapping[str, _Berth] = {}
        # With their concurrency limits, which open sessions still use: the server may return
        # meanwhile.
        self._leaving: dict[CountedUpstream, _Turnstile] = {}
        self._parted: dict[_Turnstile, _Turns] = {}
        self._waiting = Background()

    async def prepare(self, config: GatewayConfig, rules: AdmissionRules) -> PreparedMounts:
        """Create the mounts of a configuration. Raises TlsFileRefused; then nothing is left of it."""
        made: list[CountedUpstream] = []
        berths: dict[str, _Berth] = {}
        try:
            for name in config.upstreams:
                server = self._server(config, name)
                if self._is_new(name, server.upstream):
                    made.append(server.upstream)
                berths[name] = self._berth(config, rules, name, server)
        except Exception:
            for upstream in made:
                await upstream.close()
            raise
        now = {name: berth.mount for name, berth in berths.items()}
        return PreparedMounts(config, berths, now != self.mounts.by_name)

    async def discard(self, prepared: PreparedMounts) -> None:
        """Close what will not be mounted."""
        for name, berth in prepared.berths.items():
            if self._is_new(name, berth.server.upstream):
                await berth.server.upstream.close()

    def switch(self, prepared: PreparedMounts) -> None:
        """Mount what was prepared. Calls to a replaced server continue there until they end."""
        before, self._berths = self._berths, prepared.berths
        self.mounts.replace(berth.mount for berth in prepared.berths.values())
        for name, berth in prepared.berths.items():
            berth.turns.bulkhead.adjust(bulkhead_settings(prepared.config, name))
            if name not in before or before[name].server is not berth.server:
                berth.server.upstream.open()
        for name, berth in before.items():
            self._retire(berth, prepared.berths.get(name))
        self._part({berth.turns.bulkhead for berth in prepared.berths.values()})

    def vitals(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the state of each server, by name, for operators."""
        return {name: _told(mount) for name, mount in self.mounts.by_name.items()}

    async def close(self) -> None:
        """Close every server, even one in use."""
        await self._waiting.close()
        present = (berth.server.upstream for berth in self._berths.values())
        # Concurrently: each sends its server the end of its sessions.
        await asyncio.gather(*(upstream.close() for upstream in (*self._leaving, *present)))
        self._leaving.clear()

    def _server(self, config: GatewayConfig, name: str) -> _Server:
        settings = upstream_settings(config, name)
        files, known = _files(settings.tls), self._berths.get(name)
        if known is not None and (known.server.settings, known.server.files) == (settings, files):
            return known.server
        report = UpstreamReport(self._event_sink)
        try:
            upstream = self._make(settings, _observer(name, report), self._clock)
        except TlsFileRefused as refused:
            raise TlsFileRefused(f"upstreams.{name}.{refused}") from None
        return _Server(settings=settings, files=files, upstream=CountedUpstream(upstream, self.requests), report=report)

    def _berth(self, config: GatewayConfig, rules: AdmissionRules, name: str, server: _Server) -> _Berth:
        known, section = self._berths.get(name), config.upstreams[name]
        place = server.settings.place
        turns = self._parted.get((name, place)) if known is None or known.turns.place != place else known.turns
        if turns is None:
            report = UpstreamReport(self._event_sink)
            settings = bulkhead_settings(config, name)
            turns = _Turns(
                place, Bulkhead(name, settings, event_sink=report, share=self._standings.concurrency_share), report
            )
        resource = resource_of(config, self._port, section.path)
        mount = Mount(
            name=name,
            path=section.path,
            upstream=server.upstream,
            bulkhead=turns.bulkhead,
            # Never withdrawn while it serves: existing tasks can still be requested.
            offers_tasks=rules.policy.offers_tasks(name) or (known is not None and known.mount.offers_tasks),
            support=partial(self._support, name) if known is None else known.mount.support,
            extensions=server.settings.extensions,
            resource=resource,
            metadata=metadata_url(config, resource),
            scopes=config.auth.protected_resource_metadata.scopes_supported,
            info=gateway_info(__version__) if section.server_info == "gateway" else None,
        )
        # The same object if nothing has changed.
        return _Berth(known.mount if known is not None and known.mount == mount else mount, server, turns)

    def _support(self, mount: str, tool: str, hints: Mapping[str, bool]) -> TaskSupport:
        return self._live.current.policy.support(mount, tool, hints)

    def _is_new(self, name: str, upstream: CountedUpstream) -> bool:
        return name not in self._berths or self._berths[name].server.upstream is not upstream

    def _retire(self, berth: _Berth, successor: _Berth | None) -> None:
        if successor is None or successor.turns is not berth.turns:
            self._parted[berth.mount.name, berth.turns.place] = berth.turns
        if successor is not None and successor.server is berth.server:
            return
        upstream = berth.server.upstream
        berth.server.report.replaced = True
        upstream.redirect_to(partial(self._present, berth.mount.name))
        self._leaving[upstream] = berth.mount.name, berth.server.settings.place
        self._waiting.run(partial(self._let_go, upstream))

    def _part(self, present: Set[Bulkhead]) -> None:
        """Drop the limits of replaced servers that no call or session uses any more."""
        needed = {*self._leaving.values(), *(key for key, turns in self._parted.items() if turns.bulkhead.utilization)}
        for key, turns in tuple(self._parted.items()):
            turns.report.replaced = turns.bulkhead not in present
            if not turns.report.replaced or key not in needed:
                del self._parted[key]

    async def _let_go(self, upstream: CountedUpstream) -> None:
        await upstream.wait_idle()
        await upstream.close()
        del self._leaving[upstream]

    def _present(self, name: str) -> Upstream | None:
        berth = self._berths.get(name)
        return None if berth is None else berth.server.upstream


def _told(mount: Mount) -> Mapping[str, Any]:
    vitals, bulkhead = mount.upstream.vitals(), mount.bulkhead
    return {
        "up": vitals.up,
        "circuit": vitals.circuit,
        "in_use": bulkhead.in_use,
        "limit": bulkhead.limit,
        "queued": bulkhead.queued,
    }


_Files = tuple[tuple[int, int, int] | None, ...]
"""The identity of files: changes when a file is replaced."""


def _files(tls: UpstreamTls) -> _Files:
    return tuple(_stamp(path) for path in (tls.ca_file, tls.cert_file, tls.key_file))


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    try:
        found: stat_result | None = None if path is None else path.stat()
    except (OSError, ValueError):
        # The user of the file reports what is wrong with it.
        found = None
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)


def _observer(name: str, event_sink: EventSink) -> UpstreamObserver:
    return UpstreamObserver(
        begun=lambda: event_sink.emit(UpstreamAdded(name)),
        answered=lambda method, seconds, error: event_sink.emit(UpstreamAnswered(name, method, seconds, error)),
        session_lost=lambda: event_sink.emit(SessionLost(name)),
        stream_opened=lambda kind: event_sink.emit(StreamOpened("upstream", kind)),
        stream_ended=lambda kind: event_sink.emit(StreamEnded("upstream", kind)),
        credentials_got=lambda seconds, ok: event_sink.emit(CredentialsFetched(name, seconds, ok)),
        retried=lambda reason: event_sink.emit(UpstreamRetried(name, reason)),
        circuit=lambda state: event_sink.emit(CircuitChanged(name, state)),
        health=lambda ok, up: event_sink.emit(HealthChecked(name, ok, up)),
        restarted=lambda cause: event_sink.emit(ProgramRestarted(name, cause)),
        sought=lambda up: event_sink.emit(ProgramAvailabilityChanged(name, up)),
        programs=lambda count: event_sink.emit(ProgramsCounted(name, count)),
    )
