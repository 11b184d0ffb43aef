"""One running gateway: `Service`. It opens its parts from the bottom up, drains in order, and
closes them in reverse.

`cli` starts a service and ends it on a signal; tests run it in their own process. The life of a
service is `start`, any number of reloads, `drain`, `close`. `drain` lets running work end, and
`close` may also come without it. `build` creates the parts, `reload` applies another configuration,
`shutdown` has the steps of a drain.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskgate.clock import Clock, SharedClock, SteadyClock
from taskgate.config import BindAddress, ConfigurationError, GatewayConfig, effective
from taskgate.config.file_watch import FileWatch
from taskgate.domain.record import OwnerKey
from taskgate.errors import StoreUnavailable
from taskgate.listener.connection_limits import BoundedSocket, ConnectionBounds, ConnectionCounts
from taskgate.listener.listener import PublicListener
from taskgate.listener.operations import OperatorsListener
from taskgate.operators.access import OperatorAccess
from taskgate.stores.references import ReferenceOf
from taskgate.stores.shared import SharedBackend
from taskgate.system.allocator import IdleTrim
from taskgate.system.background import Background
from taskgate.telemetry.events import UnlimitedAuditCapacity
from taskgate.telemetry.metrics.admission import PENALIZED, RATE_WAITING
from taskgate.telemetry.metrics.gateway import LoopLag
from taskgate.telemetry.metrics.requests import ACTIVE_REQUESTS
from taskgate.telemetry.metrics.tasks import OLDEST, POLL_INTERVAL, RUNNING
from taskgate.telemetry.metrics.upstreams import IN_FLIGHT
from taskgate.telemetry.metrics.upstreams import STATE as UPSTREAM_STATES
from taskgate.wiring.authentication import (
    ReloadableAuthenticator,
    build_authenticator,
    deployment_keys,
    operator_tokens,
    set_operators,
)
from taskgate.wiring.build import Cluster, Environment, Runtime, build_runtime, open_configured_store
from taskgate.wiring.measured_stores import MeasuredStore
from taskgate.wiring.observability import TelemetryPipeline
from taskgate.wiring.reload import Reload, Reloaded, fingerprint
from taskgate.wiring.shutdown import Closers, drain
from taskgate.wiring.startup import StartupReport, operators_page, public_documents, shown_time, startup_report

if TYPE_CHECKING:
    from taskgate.operators.explain import CallToExplain

    ExplainCall = Callable[[GatewayConfig, int, CallToExplain], Awaitable[Mapping[str, Any]]]

NOT_NOW: Final = Reloaded(result="not_now", problems=("the gateway is starting or shutting down",))
LOOK_MOST: Final = 5.0
"""Seconds that a refused request waits for a look at replaced secrets."""
_NOBODY: Final = OwnerKey("", "")
"""The owner of no task: a look-up for it shows whether the store can be read."""

log = getLogger("taskgate.wiring.app")


class ListenFailed(Exception):
    """An address is not available. The text is for the operator."""


class Service:
    """One gateway, from `start` to `close`.

    `data_directory` is for a store and keys without a configured path. `read_config` reads the
    configuration again, on a thread, for `reread`; it raises ConfigurationError. `watch` watches its
    files; None if their changes have no effect by themselves. `configure_logs` is
    called with the new configuration after a reload that changed the logging settings. `end` is
    called when an operator requests a drain, and has to lead to `drain` and `close`;
    without it the request is refused. `explain` explains a call for the API of operators; it gets the
    configuration in force and the port of the public listener.

    `_is_ending` is set when a drain or a close begins: from then on no reload is applied.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        data_directory: Path | None,
        environment: Environment | None = None,
        read_config: Callable[[], GatewayConfig] | None = None,
        watch: FileWatch | None = None,
        configure_logs: Callable[[GatewayConfig], None] = lambda _: None,
        end: Callable[[], None] | None = None,
        explain: "ExplainCall | None" = None,
        own_token: bytes | None = None,
    ) -> None:
        self._config = config
        self._data_directory = data_directory
        self._environment = environment or Environment()
        self._read_config = read_config
        self._watch_files = watch
        self._looks = Background()
        # The last reload that a look began.
        self._look: asyncio.Task[object] | None = None
        self._configure_logs = configure_logs
        self._end = end
        self._explain = explain
        self._closers = Closers()
        environment = self._environment
        self._telemetry = TelemetryPipeline(
            config, data_directory=data_directory, clock=environment.clock, entropy=environment.entropy
        )
        self._access = OperatorAccess(environment.clock.elapsed, own_token)
        self._admin = OperatorsListener(
            access=self._access,
            metrics=self._telemetry.metrics,
            ready=self._ready,
            details=self._details,
            reload=self._report_reread,
            event_sink=self._telemetry.event_sink,
            page=self._operators_page,
            end=end,
        )
        self._store: MeasuredStore | None = None
        self._runtime: Runtime | None = None
        self._reload: Reload | None = None
        self._reload_lock = asyncio.Lock()
        self._reread_lock = asyncio.Lock()
        self._idle_trim = IdleTrim()
        self._is_ending = False
        self._serve_api: Callable[[], None] = lambda: None
        self._listener: PublicListener | None = None
        self.address: tuple[str, int] = ("", 0)
        self.admin_address: tuple[str, int] = ("", 0)

    async def start(self) -> None:
        """Open everything, and listen. Tasks of an earlier process are recovered meanwhile.

        Raises ListenFailed, KeyFileRefused, TlsRefused, TlsFileRefused, StoreUnavailable,
        AuditUnavailable or TracingUnavailable. Nothing is left open then.
        """
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise

    def _operators_page(self) -> bytes:
        return operators_page(has_console=self._access.has_tokens, metrics=self._telemetry.metrics.path)

    def startup_report(self) -> StartupReport:
        """Return what a gateway that listens says about itself to the operator who started it."""
        return startup_report(
            self._config,
            self._data_directory,
            audit=self._telemetry.audit_places,
            listen=self.address,
            admin=self.admin_address,
            has_console=self._access.has_tokens,
        )

    async def reload(self, config: GatewayConfig) -> Reloaded:
        """Apply a configuration as far as possible without a restart, and without ending any call.

        Never raises: an invalid configuration changes nothing. One at a time; a second call waits.
        """
        async with self._reload_lock:
            if self._reload is None or self._is_ending:
                return NOT_NOW
            outcome = await self._reload.apply(config)
            # It may have brought the first token of operators.
            self._serve_api()
            return outcome

    async def reread(self) -> Reloaded | None:
        """Read the configuration again and apply it; None without `read_config`."""
        if self._read_config is None:
            return None
        # Outside of the other lock: reading may never end, and `close` must not wait for it.
        async with self._reread_lock:
            if self._reload is None or self._is_ending:
                return NOT_NOW
            # What changes from here on is a change for the next look.
            self.has_changed()
            try:
                config = await asyncio.to_thread(self._read_config)
            except Exception as error:
                if self._watch_files is not None and isinstance(error, ConfigurationError):
                    # A change of one of them may be the correction.
                    self._watch_files.add(error.files)
                return self._reload.fail(error)
            if self._watch_files is not None:
                self._watch_files.follow(config.references.files)
            return await self.reload(config)

    def has_changed(self) -> bool:
        """Whether watched files have changed since they were read, or since this was last True.

        False before the gateway can reload, so that no change is lost.
        """
        return self._watch_files is not None and self._reload is not None and self._watch_files.has_changed()

    async def look(self) -> None:
        """Reload if watched files have changed, and wait for a reload that is under way.

        A server refused credentials, which may have been replaced. It returns after LOOK_MOST seconds
        at the latest, as reading may never end. Its end does not stop the reload.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_MOST):
                if self.has_changed():
                    # In an empty context: the reload is no part of the request that caused it.
                    self._look = Context().run(self._looks.start, self.reread)
                if self._look is not None and not self._look.done():
                    # Others that are refused meanwhile wait for the same.
                    await asyncio.shield(self._look)
                elif self._watch_files is not None and self._reread_lock.locked():
                    async with self._reread_lock:
                        pass

    def reopen(self) -> None:
        """Reopen the files of the audit log, after a log rotation moved them. Never raises."""
        self._telemetry.reopen()

    async def drain(self, *, delay: timedelta, hurry: asyncio.Event) -> None:
        """Stop in order: report "not ready", serve for `delay` as before, then take no new work.

        Running calls then have the configured time to end, and hosts some time to fetch results.
        There is no `delay` if `/readyz` was never requested, because then no load balancer waits
        for it. `hurry` ends every wait.

        When this returns, every task of this process has ended. The exceptions are tasks whose
        calls another replica, or the next process, resumes. With a shared store, calls that wait
        for a permit are left to the other replicas too.
        """
        assert self._runtime is not None, "start() comes before drain()"
        assert self._listener is not None
        self._is_ending = True
        self._telemetry.wind_down()
        self._admin.drain()
        self._runtime.sweeper.part()
        self._runtime.unfetched.begin(self._runtime.poll_limiter.last_interval)
        delay = delay if self._admin.readiness_was_asked else timedelta()
        log.info(
            "draining",
            extra={
                "tasks": self._runtime.runner.running,
                "requests": self._runtime.upstreams.requests.in_flight.total(),
                "delay": delay,
                "timeout": self._config.server.drain.timeout,
            },
        )
        drained = await drain(
            self._config,
            runtime=self._runtime,
            listener=self._listener,
            clock=self._environment.clock,
            delay=delay,
            hurry=hurry,
        )
        log.info("drained", extra=drained._asdict())

    async def close(self, hurry: asyncio.Event | None = None) -> None:
        """Close everything that is open; sessions and records stay in the store.

        May be called again. Once `hurry` is set, whatever hangs is abandoned.
        """
        self._is_ending = True
        self._closers.hurry = hurry or self._closers.hurry
        async with self._reload_lock:
            await self._closers.aclose()

    async def _open(self) -> None:
        # Each part is added to `closers` as it opens, so that `close` also works after an error.
        config, clock, closers, telemetry = self._config, self._environment.clock, self._closers, self._telemetry
        set_operators(self._access, config, operator_tokens(config))
        listen, tls = config.admin.listen, config.admin.tls.to_settings("admin.tls")
        try:
            self.admin_address = await self._admin.start(listen.host, listen.port, tls=tls)
        except OSError as error:
            raise _refused("admin.listen", listen, error) from None
        closers.add(self._admin.close)
        lag = LoopLag(self._tick)
        lag.start()
        closers.callback(lag.stop)
        # The port before the store: who starts a second gateway by mistake shall get the error of
        # the port.
        bound = _bind(config.server.listen, config.server.to_connection_bounds())
        closers.callback(bound.close)
        shared_clock = SharedClock(clock)
        # The keys before the store: it finds tasks by the references in the audit log.
        reference_of = await telemetry.load_keys(config)
        opened = self._environment.store or await open_configured_store(
            config, self._data_directory, shared_clock, reference_of
        )
        store, shared = (opened.store, opened) if isinstance(opened, SharedBackend) else (opened, None)
        closers.add(store.close)
        # Telemetry opens before whatever emits events, and closes after it. But who starts a second
        # gateway shall get the error of the store, so the store is first.
        closers.add(telemetry.close)
        await telemetry.open(config)
        closers.callback(telemetry.end)
        time = SteadyClock(clock) if shared is None else shared_clock
        self._store = MeasuredStore(store, event_sink=telemetry.event_sink, clock=clock, reference_of=reference_of)
        entropy = self._environment.entropy
        keys = deployment_keys(config, self._data_directory, entropy)
        authenticator = ReloadableAuthenticator(build_authenticator(config, keys, telemetry.event_sink, clock, entropy))
        closers.add(authenticator.close)
        authenticator.open()
        port = bound.getsockname()[1]
        self._runtime = runtime = await build_runtime(
            config,
            store=self._store,
            shared=shared,
            clock=time,
            callers=authenticator,
            telemetry=telemetry,
            environment=self._environment,
            port=port,
            look=self.look,
        )
        closers.add(self._looks.close)
        await self._join_cluster(runtime.cluster)
        self._open_parts(runtime)
        self._listener = PublicListener(
            config.server.to_settings(port),
            answer=runtime.gateway.answer,
            documents=public_documents(config, port, self.admin_address),
            paths=runtime.upstreams.mounts.paths,
            event_sink=telemetry.event_sink,
            audit_capacity=telemetry.audit_capacity,
            clock=clock,
            entropy=entropy,
        )
        self._watch(runtime, self._listener)
        self._serve_api = partial(self._serve_api_of, runtime, self._store, reference_of, time)
        self._serve_api()
        self.address = await self._listener.start(bound)
        closers.add(partial(self._listener.close, timedelta()))
        configuration_fingerprint = await asyncio.to_thread(fingerprint, config)
        self._reload = Reload(
            config,
            configuration_fingerprint,
            runtime=runtime,
            listener=self._listener,
            telemetry=telemetry,
            environment=self._environment,
            access=self._access,
            data_directory=self._data_directory,
            port=port,
            admin=self.admin_address,
            configure_logs=self._configure_logs,
        )
        telemetry.begin(configuration_fingerprint)
        if config.auth.mode == "none":
            log.warning("authentication is off (auth.mode: none): all hosts that reach the listener are one caller")

    def _tick(self, late: float) -> None:
        """Measure the process; called several times a second, with the lag of the event loop."""
        self._telemetry.metrics.observe_lag(late)
        self._idle_trim.update(self._environment.pressure.update())

    def _serve_api_of(self, runtime: Runtime, store: MeasuredStore, reference_of: ReferenceOf, clock: Clock) -> None:
        """Serve the API of operators and the console, once one has a token."""
        if self._access.has_tokens and not self._admin.has_api:
            # Without tokens its modules are not loaded.
            from taskgate.operators.console.page import ConsolePage  # noqa: PLC0415
            from taskgate.operators.control import ControlRoutes  # noqa: PLC0415
            from taskgate.operators.explain import ExplainRoutes  # noqa: PLC0415
            from taskgate.wiring.operators import build_operators_api  # noqa: PLC0415

            control = ControlRoutes(effective=self._effective, reload=self._report_reread, end=self._end)
            entropy = self._environment.entropy
            api = build_operators_api(
                self._access,
                runtime,
                store=store,
                reference_of=reference_of,
                control=control,
                explain=ExplainRoutes(None if self._explain is None else self._explain_in_force),
                event_ring=self._telemetry.event_sink,
                upstream_states=self._telemetry.upstream_states,
                audit_capacity=self._telemetry.audit_capacity or UnlimitedAuditCapacity(),
                clock=clock,
                entropy=entropy,
            )
            self._admin.serve(api, ConsolePage(self._access, entropy))

    def _watch(self, runtime: Runtime, listener: PublicListener) -> None:
        """Register values that are read when metrics are scraped."""
        metrics, clock = self._telemetry.metrics, self._environment.clock
        metrics.watch(ACTIVE_REQUESTS, listener.active)
        metrics.watch(IN_FLIGHT, runtime.upstreams.requests.read)
        metrics.watch(UPSTREAM_STATES, lambda: runtime.upstreams.states(self._telemetry.upstream_states))
        metrics.watch(RUNNING, runtime.runner.calls_running)
        metrics.watch(OLDEST, runtime.runner.oldest_ages)
        metrics.watch(POLL_INTERVAL, runtime.poll_limiter.newest)
        metrics.watch(RATE_WAITING, lambda: {(): len(runtime.rate_limiter.queue)})
        if (penalties := runtime.penalties) is not None:
            metrics.watch(PENALIZED, lambda: {(): penalties.count(clock.elapsed())})

    async def _join_cluster(self, cluster: Cluster) -> None:
        """Join the other replicas, if the store is shared.

        Before anything reads records: their times are judged by the store's clock.
        """
        if cluster.leasing is not None:
            await cluster.leasing.open()
            self._closers.add(cluster.leasing.close)
        if cluster.bus is not None:
            cluster.bus.open()
            self._closers.add(cluster.bus.close)
        if cluster.shared_resumable is not None:
            self._closers.add(cluster.shared_resumable.close)

    def _open_parts(self, runtime: Runtime) -> None:
        """Open the parts that have to be opened. They close in reverse order."""
        closers = self._closers
        # Its remaining look-ups need the store.
        closers.add(runtime.lookups.close)
        # Server programs end with their upstreams; this ends the remaining ones.
        closers.add(runtime.supervisor.close)
        closers.add(runtime.upstreams.close)
        closers.add(runtime.sessions.close)
        closers.add(runtime.session_pool.close)
        closers.add(runtime.calls.close)
        closers.add(runtime.retries.close)
        closers.add(runtime.coalescer.close)
        runtime.runner.open()
        closers.add(runtime.runner.stop)
        runtime.sweeper.open()
        closers.add(runtime.sweeper.close)
        closers.add(runtime.get_streams.close)
        closers.add(runtime.input_delivery.close)
        closers.add(runtime.subscriptions.close)

    async def _ready(self) -> Mapping[str, bool]:
        """Return what the gateway needs in order to serve, by name, and whether it is there.

        It must listen, reach its store, write there, and be able to verify tokens. Servers do not
        count, nor does an issuer whose keys were fetched once.
        """
        if self._store is None or self._runtime is None or not self.address[1]:
            return {"started": False}
        found = {"started": True, "store": True, "keys": self._runtime.callers.ready}
        try:
            await self._store.load(_NOBODY, "", now=self._environment.clock.now())
        except StoreUnavailable:
            found["store"] = False
        # A readable store may not be writable: a full disk.
        found["store_writes"] = self._store.fault is None
        if (leasing := self._runtime.cluster.leasing) is not None:
            # A process that can read a shared store may not be able to write its lease.
            found["lease"] = leasing.is_heard
        return found

    def _details(self) -> Mapping[str, Any]:
        """Return the state of each server and of each issuer's keys by name, and the number of replicas.

        Sinks of the audit log are there while they cannot be written. The number includes this gateway. There is
        none if the store is not shared.
        """
        runtime = self._runtime
        if runtime is None:
            return {"upstreams": {}}
        upstreams = runtime.upstreams.vitals(self._telemetry.upstream_states, runtime.runner.oldest_ages())
        found: dict[str, Any] = {"upstreams": upstreams}
        if keys := runtime.callers.authenticator.keys_states():
            found["issuers"] = {
                name: {**state._asdict(), "since": shown_time(state.since)} for name, state in keys.items()
            }
        if troubles := self._telemetry.audit_troubles:
            found["audit"] = {
                name: {**trouble._asdict(), "since": shown_time(trouble.since)} for name, trouble in troubles.items()
            }
        if (leasing := runtime.cluster.leasing) is not None:
            found["replicas"] = leasing.processes
            if leasing.vanished:
                found["vanished"] = {name: shown_time(since) for name, since in leasing.vanished.items()}
        return found

    def _effective(self) -> str:
        """Return the configuration in force as YAML, without secrets."""
        return effective(self._in_force)

    @property
    def _in_force(self) -> GatewayConfig:
        return self._config if self._reload is None else self._reload.config

    async def _explain_in_force(self, call: "CallToExplain") -> Mapping[str, Any]:
        """Explain a call by the configuration in force. Raises ApiError."""
        assert self._explain is not None, "the route is given no function then"
        return await self._explain(self._in_force, self.address[1], call)

    async def _report_reread(self) -> Mapping[str, Any] | None:
        """Reload for an operator's request, and return the outcome as JSON members."""
        reloaded = await self.reread()
        return None if reloaded is None else asdict(reloaded)


def expect_address(key: str, listen: BindAddress) -> None:
    """Check that an address is available, by taking it for a moment. Raises ListenFailed."""
    _listening(key, listen).close()


def _bind(listen: BindAddress, bounds: ConnectionBounds) -> socket.socket:
    """Bind the socket of the public listener, and return it. Raises ListenFailed.

    The system queues connections from now on; `PublicListener.start` takes the socket and accepts
    them, within `bounds`.
    """
    return BoundedSocket(_listening("server.listen", listen), ConnectionCounts(bounds))


def _listening(key: str, listen: BindAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        return socket.create_server((listen.host, listen.port), family=family)
    except OSError as error:
        raise _refused(key, listen, error) from None


def _refused(key: str, listen: BindAddress, error: OSError) -> ListenFailed:
    """Return the error to raise when the system refused a listen address.

    `key` is the configuration key of the address, which begins the text.
    """
    # Only the system's reason. The text of `error` may repeat the address, as asyncio's does for
    # the operators' listener.
    reason = os.strerror(error.errno).lower() if error.errno is not None and error.errno > 0 else "no such address"
    return ListenFailed(f"{key}: cannot listen on {listen}: {reason}")
