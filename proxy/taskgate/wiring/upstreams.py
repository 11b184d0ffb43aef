"""The configured upstreams and their mounts: `UpstreamRegistry`, and `upstream_maker`.

A mount is one server under one path, with its concurrency limit. The registry creates mounts at the
start and again at each reload, where unchanged ones stay the same objects. Both times `prepare`
comes first, then `switch`, or `discard` if something else of the configuration is invalid. Nothing
prepared takes effect before `switch`, which never fails and never waits.

A server whose settings changed is replaced: new sessions use its successor, and it is closed after
its last session. If only secrets changed, the server stays, and open sessions use the new ones. A
concurrency limit belongs to a server's name and place. It stays while calls or sessions still use
it, so that a server that returns has its old limit with its running calls.
"""

import asyncio
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from logging import getLogger
from math import inf
from os import stat_result
from pathlib import Path
from typing import Any, Final, NamedTuple

from taskgate import __version__
from taskgate.admission.concurrency import Bulkhead
from taskgate.admission.mounts import Mount, Mounts
from taskgate.admission.rates import QuotaSubjects
from taskgate.admission.rules import AdmissionRules, RuntimeConfig
from taskgate.clock import Clock, Entropy
from taskgate.config import GatewayConfig
from taskgate.config.model import bulkhead_settings, upstream_settings
from taskgate.protocol.discovery import gateway_info
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.sessions.upstream_tracing import call_spans
from taskgate.sessions.upstream_usage import CountableUpstream, CountedUpstream
from taskgate.system.background import Background
from taskgate.system.log_throttle import ThrottledLog
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
    UpstreamRequestFailed,
    UpstreamRetried,
)
from taskgate.telemetry.tracing import Tracing
from taskgate.telemetry.upstream_condition import UpstreamState
from taskgate.telemetry.upstream_states import UpstreamStates, UpstreamView
from taskgate.upstream.base import Upstream
from taskgate.upstream.client import UpstreamClient, choose_transport
from taskgate.upstream.credentials.speaking import Look, look_nowhere
from taskgate.upstream.session import RequestCounter
from taskgate.upstream.settings import (
    FixedHeader,
    GrantKind,
    GrantSettings,
    UpstreamObserver,
    UpstreamSettings,
    UpstreamTls,
)
from taskgate.upstream.stdio.supervisor_client import Supervisor
from taskgate.upstream.wire.trust import TlsFileRefused
from taskgate.wiring.authentication import metadata_url, resource_of
from taskgate.wiring.startup import shown_server, shown_time

log = getLogger("taskgate.upstream")

MakeUpstream = Callable[[UpstreamSettings, UpstreamObserver, Clock], CountableUpstream]

_STATES: Final = (
    CircuitChanged,
    ConcurrencyChanged,
    HealthChecked,
    ProgramAvailabilityChanged,
    ProgramsCounted,
    UpstreamRequestFailed,
)
"""Events that report a state. From a replaced server, they would overwrite its successor's state."""


def upstream_maker(supervisor: Supervisor, entropy: Entropy, look: Look = look_nowhere) -> MakeUpstream:
    """Return the factory of upstreams. `supervisor` starts server programs, `look` looks for replaced
    secrets."""

    def made(settings: UpstreamSettings, observer: UpstreamObserver, clock: Clock) -> CountableUpstream:
        extensions = settings.extensions
        return UpstreamClient(
            settings,
            dialect=LegacyUpstream(__version__, extensions),
            modern=ModernUpstream(__version__, extensions),
            observer=observer,
            clock=clock,
            entropy=entropy,
            way=choose_transport(settings, observer, supervisor),
            look=look,
        )

    return made


class UpstreamReport:
    """The event sink of one server, or of one concurrency limit.

    `replaced` is set when a reload has replaced its owner: events of a state are then dropped.
    """

    def __init__(self, event_sink: EventSink) -> None:
        self._event_sink = event_sink
        self.replaced = False

    def emit(self, event: Event) -> None:
        """Pass an event on, unless it is the state of a replaced server."""
        if not (self.replaced and isinstance(event, _STATES)):
            self._event_sink.emit(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """A server, and what it was created from: at a reload it stays if no more than secrets changed."""

    settings: UpstreamSettings
    files: "_Files"
    upstream: CountedUpstream
    report: UpstreamReport


class _Limit(NamedTuple):
    """The concurrency limit of a server at a place, which is its address or command."""

    place: tuple[str, ...]
    bulkhead: Bulkhead
    report: UpstreamReport


_LimitKey = tuple[str, tuple[str, ...]]
"""The key of a concurrency limit: the name of a server, and its place."""


class _MountedServer(NamedTuple):
    """A mount with its server and its concurrency limit."""

    mount: Mount
    server: _Server
    limit: _Limit


class PreparedMounts(NamedTuple):
    """The mounts of a configuration, not yet in use. `is_new` is whether one differs from the
    present mounts.
    """

    config: GatewayConfig
    mounted_servers: Mapping[str, _MountedServer]
    is_new: bool


class UpstreamRegistry:
    """The servers and mounts of a gateway."""

    def __init__(
        self,
        *,
        live: RuntimeConfig,
        quota_subjects: QuotaSubjects,
        make: MakeUpstream,
        tracing: Tracing,
        event_sink: EventSink,
        clock: Clock,
        port: int,
    ) -> None:
        """`port` is the public listener's."""
        self.mounts = Mounts()
        self.requests = RequestCounter()
        self._live = live
        self._quota_subjects = quota_subjects
        self._make = make
        self._tracing = tracing
        self._event_sink = event_sink
        self._clock = clock
        self._port = port
        self._mounted: Mapping[str, _MountedServer] = {}
        # Names of servers that were held when a reload removed them.
        self._held_absent: Set[str] = frozenset()
        # Replaced servers that still have sessions, with the keys of their concurrency limits.
        self._leaving: dict[CountedUpstream, _LimitKey] = {}
        self._replaced_limits: dict[_LimitKey, _Limit] = {}
        # One task for each replaced server: it waits for the last session, and closes the server.
        self._waiting = Background()

    async def prepare(self, config: GatewayConfig, rules: AdmissionRules) -> PreparedMounts:
        """Create the mounts of a configuration, for `switch` or `discard`.

        Raises TlsFileRefused; then nothing is left of them.
        """
        made: list[CountedUpstream] = []
        # Never withdrawn while it serves, as `offers_tasks`: models may hold handles.
        reserved = config.tasks.to_reserved(rules.policy).union(
            *(mounted.mount.reserved for mounted in self._mounted.values())
        )
        mounted_servers: dict[str, _MountedServer] = {}
        try:
            for name in config.upstreams:
                server = self._server(config, name)
                if self._is_new(name, server.upstream):
                    made.append(server.upstream)
                mounted_servers[name] = self._mounted_server(config, rules, name, server, reserved)
        except Exception:
            for upstream in made:
                await upstream.close()
            raise
        now = {name: mounted.mount for name, mounted in mounted_servers.items()}
        return PreparedMounts(config, mounted_servers, now != self.mounts.by_name)

    async def discard(self, prepared: PreparedMounts) -> None:
        """Close the new servers of mounts that will not take effect."""
        for name, mounted in prepared.mounted_servers.items():
            if self._is_new(name, mounted.server.upstream):
                await mounted.server.upstream.close()

    def switch(self, prepared: PreparedMounts) -> None:
        """Put the prepared mounts in the place of the present ones.

        New servers open, and replaced ones close after their last session. Calls to a replaced
        server continue there until they end.
        """
        before, self._mounted = self._mounted, prepared.mounted_servers
        held = self._held_absent | {name for name, mounted in before.items() if mounted.limit.bulkhead.is_held}
        self._held_absent = held - prepared.mounted_servers.keys()
        self.mounts.replace(mounted.mount for mounted in prepared.mounted_servers.values())
        for name, mounted in prepared.mounted_servers.items():
            bulkhead = mounted.limit.bulkhead
            bulkhead.adjust(bulkhead_settings(prepared.config, name))
            # A hold is of the name: it stays if the server moves to another place, or is away for a while.
            bulkhead.hold(name in held)
            if name not in before or before[name].server.upstream is not mounted.server.upstream:
                mounted.server.upstream.open()
            elif before[name].server is not mounted.server:
                mounted.server.upstream.renew(mounted.server.settings)
        for name, mounted in before.items():
            self._replace(mounted, prepared.mounted_servers.get(name))
        for upstream, (name, place) in self._leaving.items():
            successor = prepared.mounted_servers.get(name)
            if successor is not None and successor.server.settings.place == place:
                upstream.renew(successor.server.settings)
        self._drop_unused_limits({mounted.limit.bulkhead for mounted in prepared.mounted_servers.values()})

    def vitals(self, states: UpstreamStates, oldest: Mapping[tuple[str], float]) -> Mapping[str, Mapping[str, Any]]:
        """Return the state of each server, by name, for operators. `oldest` is the age of its oldest task here."""
        return {
            name: _state_of(mount, states.view(name, is_held=mount.bulkhead.is_held), oldest.get((name,)))
            for name, mount in self.mounts.by_name.items()
        }

    def states(self, states: UpstreamStates) -> Mapping[tuple[str, UpstreamState], float]:
        """Return the values of a metric: 1 for the state of each server, 0 for the others; none while it is unknown."""
        found: dict[tuple[str, UpstreamState], float] = {}
        for name, mount in self.mounts.by_name.items():
            present = states.view(name, is_held=mount.bulkhead.is_held).state
            if present is not None:
                found |= {(name, state): state is present for state in UpstreamState}
        return found

    async def close(self) -> None:
        """Close every server, even one in use."""
        await self._waiting.close()
        present = (mounted.server.upstream for mounted in self._mounted.values())
        # Concurrently: each sends its server the end of its sessions.
        await asyncio.gather(*(upstream.close() for upstream in (*self._leaving, *present)))
        self._leaving.clear()

    def _server(self, config: GatewayConfig, name: str) -> _Server:
        """Return the present server of that name, or another one if its settings have changed.

        If only secrets differ, it is the present one, which `switch` gives the new ones.
        """
        settings = upstream_settings(config, name)
        files, present = _files(settings.tls), self._mounted.get(name)
        if present is not None and present.server.files == files:
            before = present.server.settings
            if before == settings:
                return present.server
            if before.without_secrets() == settings.without_secrets():
                return replace(present.server, settings=settings)
        report = UpstreamReport(self._event_sink)
        try:
            made = self._make(settings, _observer(name, report, self._event_sink), self._clock)
        except TlsFileRefused as refused:
            raise TlsFileRefused(f"upstreams.{name}.{refused}") from None
        upstream = CountedUpstream(made, self.requests, call_spans(self._tracing, name, settings.url))
        return _Server(settings=settings, files=files, upstream=upstream, report=report)

    def _mounted_server(
        self, config: GatewayConfig, rules: AdmissionRules, name: str, server: _Server, reserved: frozenset[str]
    ) -> _MountedServer:
        """Return the mount of a server, with the concurrency limit of its name and place.

        `reserved` are the names that tools of the gateway have at some mount.
        """
        present, section = self._mounted.get(name), config.upstreams[name]
        place = server.settings.place
        # A server that returns to an earlier place gets its old limit, with the calls that still run.
        limit = (
            self._replaced_limits.get((name, place))
            if present is None or present.limit.place != place
            else present.limit
        )
        if limit is None:
            report = UpstreamReport(self._event_sink)
            settings = bulkhead_settings(config, name)
            limit = _Limit(
                place, Bulkhead(name, settings, event_sink=report, share=self._quota_subjects.concurrency_share), report
            )
        resource, tools = resource_of(config, self._port, section.path), config.tasks.handoff.to_tools()
        # Never withdrawn while it serves: existing tasks can still be requested.
        offers_tasks = rules.policy.offers_tasks(name) or (present is not None and present.mount.offers_tasks)
        mount = Mount(
            name=name,
            path=section.path,
            upstream=server.upstream,
            bulkhead=limit.bulkhead,
            offers_tasks=offers_tasks,
            extensions=server.settings.extensions,
            server=shown_server(config, name),
            resource=resource,
            metadata=metadata_url(config, resource),
            gets_scopes=_gets_scopes(server.settings.credentials),
            scopes=config.auth.protected_resource_metadata.scopes_supported,
            info=gateway_info(__version__) if section.server_info == "gateway" else None,
            may_hand_off=partial(self._may_hand_off, name) if present is None else present.mount.may_hand_off,
            # Models may hold handles that are older than the configuration.
            handoff=tools if offers_tasks else None,
            inbox=config.tasks.inbox and offers_tasks,
            reserved=reserved,
            hands_off=rules.policy.hands_off(name) or (present is not None and present.mount.hands_off),
        )
        # The same object if nothing has changed.
        return _MountedServer(present.mount if present is not None and present.mount == mount else mount, server, limit)

    def _may_hand_off(self, mount: str, tool: str, hints: Mapping[str, bool]) -> bool:
        return self._live.current.policy.may_hand_off(mount, tool, hints)

    def _is_new(self, name: str, upstream: CountedUpstream) -> bool:
        return name not in self._mounted or self._mounted[name].server.upstream is not upstream

    def _replace(self, mounted: _MountedServer, successor: _MountedServer | None) -> None:
        """Handle that a mount was replaced or removed; `successor` may have the same server."""
        if successor is None or successor.limit is not mounted.limit:
            self._replaced_limits[mounted.mount.name, mounted.limit.place] = mounted.limit
        if successor is not None and successor.server.upstream is mounted.server.upstream:
            return
        upstream = mounted.server.upstream
        mounted.server.report.replaced = True
        # Holders of this server open further sessions at its successor, if there is one.
        upstream.redirect_to(partial(self._upstream_of, mounted.mount.name))
        self._leaving[upstream] = mounted.mount.name, mounted.server.settings.place
        self._waiting.run(partial(self._close_when_idle, upstream))

    def _drop_unused_limits(self, present: Set[Bulkhead]) -> None:
        """Drop replaced limits that no call or session uses any more, and those in use again.

        `present` are the limits of the present mounts.
        """
        needed = {
            *self._leaving.values(),
            *(key for key, limit in self._replaced_limits.items() if limit.bulkhead.utilization),
        }
        for key, limit in tuple(self._replaced_limits.items()):
            limit.report.replaced = limit.bulkhead not in present
            if not limit.report.replaced or key not in needed:
                del self._replaced_limits[key]

    async def _close_when_idle(self, upstream: CountedUpstream) -> None:
        await upstream.wait_idle()
        await upstream.close()
        del self._leaving[upstream]

    def _upstream_of(self, name: str) -> Upstream | None:
        mounted = self._mounted.get(name)
        return None if mounted is None else mounted.server.upstream


def _gets_scopes(credentials: FixedHeader | GrantSettings | None) -> bool:
    """Return whether a server gets tokens that are made of those of callers, and so have their scopes."""
    return isinstance(credentials, GrantSettings) and credentials.kind is GrantKind.TOKEN_EXCHANGE


def _state_of(mount: Mount, view: UpstreamView, oldest: float | None) -> Mapping[str, Any]:
    vitals, bulkhead = mount.upstream.vitals(), mount.bulkhead
    reason = {} if vitals.circuit_reason is None else {"circuit_reason": vitals.circuit_reason}
    return {
        "state": view.state,
        "cause": view.cause,
        "since": shown_time(view.since),
        "recent_requests": view.requests,
        "recent_failures": view.failures,
        "up": vitals.up,
        "circuit": vitals.circuit,
        **reason,
        "in_use": bulkhead.in_use,
        "limit": bulkhead.limit,
        "queued": bulkhead.queued,
        "held": bulkhead.is_held,
        **({} if oldest is None else {"oldest_task": round(oldest)}),
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


def _observer(name: str, report: UpstreamReport, event_sink: EventSink) -> UpstreamObserver:
    """Return the observer of a server. `report` takes its events of a state, `event_sink` the
    others."""
    skipped = ThrottledLog(log, "what a server sends is skipped: it is no JSON-RPC message")
    list_cut = ThrottledLog(log, "a server's list of tools is taken to be complete: its pages repeat", pause=inf)

    return UpstreamObserver(
        begun=lambda: event_sink.emit(UpstreamAdded(name)),
        answered=lambda method, seconds, error, is_own: event_sink.emit(
            UpstreamAnswered(name, method, seconds, error, is_own, report.replaced)
        ),
        session_lost=lambda: event_sink.emit(SessionLost(name)),
        stream_opened=lambda kind: event_sink.emit(StreamOpened("upstream", kind)),
        stream_ended=lambda kind: event_sink.emit(StreamEnded("upstream", kind)),
        skipped=lambda size: skipped.emit({"upstream": name, "bytes": size}),
        list_cut=lambda: list_cut.emit({"upstream": name}),
        credentials_got=lambda seconds, ok: event_sink.emit(CredentialsFetched(name, seconds, ok)),
        retried=lambda reason: event_sink.emit(UpstreamRetried(name, reason)),
        failed=lambda method, reason, cause, is_answer: report.emit(
            UpstreamRequestFailed(name, method, reason, cause, is_answer)
        ),
        circuit=lambda state, cause, is_for_all: report.emit(CircuitChanged(name, state, cause, is_for_all)),
        health=lambda ok, up, cause: report.emit(HealthChecked(name, ok, up, cause)),
        restarted=lambda cause: event_sink.emit(ProgramRestarted(name, cause)),
        sought=lambda up, cause: report.emit(ProgramAvailabilityChanged(name, up, cause)),
        programs=lambda count: report.emit(ProgramsCounted(name, count)),
    )
