"""One running gateway: `Service`. It opens its parts from the bottom up, drains in order, and
closes them in reverse.

`cli` starts a service and ends it on a signal; tests run it in their own process. `build` creates
the parts, `reload` applies another configuration. The order of a shutdown is in `drain` and
`close`.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import Any, Final

from taskgate.clock import SharedClock, SteadyClock
from taskgate.config import GatewayConfig
from taskgate.config.reload import fingerprint
from taskgate.domain.record import OwnerKey
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.measured import MeasuredStore
from taskgate.listener.listener import PublicListener
from taskgate.listener.operations import OperatorsListener
from taskgate.stores.shared import SharedBackend
from taskgate.telemetry.loop_lag import LoopLag
from taskgate.telemetry.metrics.admission import PENALIZED
from taskgate.telemetry.metrics.requests import ACTIVE_REQUESTS
from taskgate.telemetry.metrics.upstreams import IN_FLIGHT
from taskgate.wiring.authentication import build_authenticator, deployment_keys, operators_token
from taskgate.wiring.build import Environment, Kept, Runtime, build_listener, build_runtime, open_configured_store
from taskgate.wiring.core import Cluster
from taskgate.wiring.observation import TelemetryPipeline
from taskgate.wiring.parting import LAST_MOMENT, Closers, close_door, part, settled, take_no_more, unless
from taskgate.wiring.reload import Reload, Reloaded, Stage
from taskgate.wiring.reloadable_authenticator import ReloadableAuthenticator
from taskgate.wiring.sockets import bind, refused

NOT_NOW: Final = Reloaded(result="invalid", problems=("the gateway is starting or shutting down",))
_NOBODY: Final = OwnerKey("", "")

log = getLogger("taskgate.wiring.app")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSource:
    """The source of the configuration.

    `read` reads it again, on a thread; it raises ConfigurationError. `relog` is called when the
    logging settings change.
    """

    read: Callable[[], GatewayConfig]
    relog: Callable[[GatewayConfig], None] = lambda _: None


class Service:
    """One gateway, from `start` to `close`.

    `data_directory` is for a store without a configured path; other stores need none. `source`
    enables reloads. `end` is called when an operator requests a drain; without it that is refused.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        data_directory: Path | None,
        environment: Environment | None = None,
        source: ConfigSource | None = None,
        end: Callable[[], None] | None = None,
    ) -> None:
        self._config = config
        self._data_directory = data_directory
        self._around = environment or Environment()
        self._source = source
        self._closers = Closers()
        around = self._around
        self._sight = TelemetryPipeline(
            config, data_directory=data_directory, clock=around.clock, entropy=around.entropy
        )
        self._admin = OperatorsListener(
            metrics=self._sight.metrics,
            ready=self._ready,
            servers=self._servers,
            reload=self._report_reread,
            event_sink=self._sight,
            end=end,
            replicas=self._replicas,
        )
        self._store: MeasuredStore | None = None
        self._runtime: Runtime | None = None
        self._reload: Reload | None = None
        self._reloading = asyncio.Lock()
        self._rereading = asyncio.Lock()
        self._ending = False
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

    async def reload(self, config: GatewayConfig) -> Reloaded:
        """Apply a configuration as far as possible without a restart, and without cutting any call.

        Never raises: an invalid configuration changes nothing. One at a time; a second call waits.
        """
        async with self._reloading:
            if self._reload is None or self._ending:
                return NOT_NOW
            return await self._reload.apply(config)

    async def reread(self) -> Reloaded | None:
        """Read the source again and apply it; None without a source."""
        if self._source is None:
            return None
        # Outside of the other lock: reading may never end, and `close` must not wait for it.
        async with self._rereading:
            if self._reload is None or self._ending:
                return NOT_NOW
            try:
                config = await asyncio.to_thread(self._source.read)
            except Exception as error:
                return self._reload.fail(error)
            return await self.reload(config)

    def reopen(self) -> None:
        """Reopen the files of the audit log, after a log rotation moved them. Never raises."""
        self._sight.reopen()

    async def drain(self, *, delay: timedelta, hurry: asyncio.Event) -> None:
        """Stop in order: first not ready, then `delay` as before, then no new work while calls end.

        There is no `delay` if `/readyz` was never requested, because no balancer learns of the
        drain by it. Hosts have time to fetch results. `hurry` ends every wait.

        When this returns, every task of this process has ended. The exceptions are tasks whose
        calls another replica, or the next process, resumes. With a shared store, calls that wait
        for a permit are left to the other replicas too.
        """
        assert self._runtime is not None, "start() comes before drain()"
        assert self._listener is not None
        rules, clock = self._config.server.drain, self._around.clock
        self._ending = True
        self._sight.wind_down()
        self._admin.drain()
        self._runtime.sweeper.part()
        self._runtime.unfetched.begin(self._runtime.polls.last_interval)
        delay = delay if self._admin.readiness_was_asked else timedelta()
        log.info("draining")
        await take_no_more(self._listener, self._runtime, delay, rules.timeout, hurry)
        deadline = clock.elapsed() + rules.timeout.total_seconds()
        is_alone = self._runtime.company.leasing is None
        if rules.running_tasks == "wait":
            waited = settled(self._runtime) if is_alone else self._runtime.runner.idle()
            await unless(hurry, waited, within=rules.timeout)
        await unless(hurry, self._runtime.sweeper.close(), moment=LAST_MOMENT)
        await unless(hurry, self._runtime.runner.stop(), moment=LAST_MOMENT)
        if is_alone:
            # No replica ends them: their hosts return to the next process.
            self._runtime.following.leave(frozenset(self._runtime.runner.left), rules.timeout)
            left = timedelta(seconds=max(deadline - clock.elapsed(), 0.0))
            await unless(hurry, settled(self._runtime), within=left)
            await close_door(self._listener)
        left = timedelta(seconds=max(deadline - clock.elapsed(), 0.0))
        await unless(hurry, part(self._listener, self._runtime, left))
        # A task that was being created when the runner stopped may have started since.
        await unless(hurry, self._runtime.runner.stop(), moment=LAST_MOMENT)

    async def close(self, hurry: asyncio.Event | None = None) -> None:
        """Close everything; sessions and records stay in the store. May be called again.

        After `hurry` is set, whatever hangs is abandoned.
        """
        self._ending = True
        self._closers.hurry = hurry or self._closers.hurry
        async with self._reloading:
            await self._closers.aclose()

    async def _open(self) -> None:
        config, clock, closers, sight = self._config, self._around.clock, self._closers, self._sight
        token = operators_token(config)
        try:
            self.admin_address = await self._admin.start(config.admin.listen.host, config.admin.listen.port, token)
        except OSError as error:
            raise refused("admin.listen", config.admin.listen, error) from None
        closers.add(self._admin.close)
        lag = LoopLag(self._tick)
        lag.start()
        closers.callback(lag.stop)
        # The port before the store: who starts a second gateway by mistake shall get the error of
        # the port.
        bound = bind(config.server.listen, config.server.to_connection_bounds())
        closers.callback(bound.close)
        theirs = SharedClock(clock)
        opened = self._around.store or await open_configured_store(config, self._data_directory, theirs)
        store, shared = (opened.store, opened) if isinstance(opened, SharedBackend) else (opened, None)
        closers.add(store.close)
        # Telemetry opens before whatever emits events, and closes after it. But who starts a second
        # gateway shall get the error of the store, so the store is first.
        closers.add(sight.close)
        await sight.open(config)
        closers.callback(sight.end)
        time = SteadyClock(clock) if shared is None else theirs
        self._store = MeasuredStore(store, event_sink=sight.event_sink, clock=clock)
        entropy = self._around.entropy
        keys = deployment_keys(config, self._data_directory, entropy)
        gate = ReloadableAuthenticator(build_authenticator(config, keys, sight.event_sink, clock, entropy))
        closers.add(gate.close)
        gate.open()
        port = bound.getsockname()[1]
        kept = Kept(self._store, shared, time)
        self._runtime = runtime = await build_runtime(config, kept, gate, sight, self._around, port)
        await self._open_company(runtime.company)
        self._open_house(runtime)
        self._listener = build_listener(config, runtime, port, sight, self._around)
        self._watch(runtime, self._listener)
        self.address = await self._listener.start(bound)
        closers.add(partial(self._listener.close, timedelta()))
        mark = await asyncio.to_thread(fingerprint, config)
        self._reload = Reload(config, self._stage(runtime, self._listener, port), mark)
        sight.begin(mark)
        if config.auth.mode == "none":
            log.warning("authentication is off (auth.mode: none): all hosts that reach the listener are one caller")

    def _tick(self, late: float) -> None:
        self._sight.metrics.observe_lag(late)
        self._around.pressure.update()

    def _watch(self, runtime: Runtime, listener: PublicListener) -> None:
        """Register values that are read when metrics are scraped."""
        metrics, clock = self._sight.metrics, self._around.clock
        metrics.watch(ACTIVE_REQUESTS, listener.active)
        metrics.watch(IN_FLIGHT, runtime.mounting.requests.read)
        if (penalties := runtime.penalties) is not None:
            metrics.watch(PENALIZED, lambda: {(): penalties.count(clock.elapsed())})

    async def _open_company(self, company: Cluster) -> None:
        """Join the other replicas, if the store is shared: without the store's clock no record can
        be judged.
        """
        if company.leasing is not None:
            await company.leasing.open()
            self._closers.add(company.leasing.close)
        if company.bus is not None:
            company.bus.open()
            self._closers.add(company.bus.close)
        if company.shared_resumable is not None:
            self._closers.add(company.shared_resumable.close)

    def _open_house(self, runtime: Runtime) -> None:
        closers = self._closers
        # Its remaining look-ups need the store.
        closers.add(runtime.lookups.close)
        # Server programs end with their upstreams; this ends the remaining ones.
        closers.add(runtime.nurse.close)
        closers.add(runtime.mounting.close)
        closers.add(runtime.sessions.close)
        closers.add(runtime.lines.close)
        closers.add(runtime.calls.close)
        closers.add(runtime.joining.close)
        runtime.runner.open()
        closers.add(runtime.runner.stop)
        runtime.sweeper.open()
        closers.add(runtime.sweeper.close)
        closers.add(runtime.listening.close)
        closers.add(runtime.offers.close)
        closers.add(runtime.subscriptions.close)
        closers.callback(runtime.relaying.close)

    async def _ready(self) -> Mapping[str, bool]:
        """Return what the gateway needs in order to serve, by name, and whether it is there.

        It must listen, reach its store, write there, and be able to verify tokens. Servers do not
        count, nor does an issuer whose keys were fetched once.
        """
        if self._store is None or self._runtime is None or not self.address[1]:
            return {"started": False}
        found = {"started": True, "store": True, "keys": self._runtime.callers.ready}
        try:
            await self._store.load(_NOBODY, "", now=self._around.clock.now())
        except StoreUnavailable:
            found["store"] = False
        # A readable store may not be writable: a full disk.
        found["store_writes"] = self._store.fault is None
        if (leasing := self._runtime.company.leasing) is not None:
            # A process that can read a shared store may not be able to write its lease.
            found["lease"] = leasing.is_heard
        return found

    def _replicas(self) -> int | None:
        """Return the number of gateways that share the store, including this one; None if it is not
        shared.
        """
        leasing = None if self._runtime is None else self._runtime.company.leasing
        return None if leasing is None else leasing.processes

    def _servers(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the state of each server, by name."""
        return {} if self._runtime is None else self._runtime.mounting.vitals()

    async def _report_reread(self) -> Mapping[str, Any] | None:
        reloaded = await self.reread()
        return None if reloaded is None else asdict(reloaded)

    def _stage(self, runtime: Runtime, listener: PublicListener, port: int) -> Stage:
        stage = Stage(
            runtime=runtime,
            listener=listener,
            sight=self._sight,
            around=self._around,
            data_directory=self._data_directory,
            port=port,
        )
        return stage if self._source is None else replace(stage, relog=self._source.relog)
