"""From facts to metrics: which fact moves which family of the catalogue.

One short function a fact, found by the fact's type. What a family is called and what its labels may be stands in
`catalogue.py`; how a series is kept, in `series.py`.
"""

import logging
import platform
from collections.abc import Callable, Collection, Mapping

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector

from taskgate import __version__
from taskgate.clock import Clock, SystemClock
from taskgate.tasks.record import TaskStatus
from taskgate.telemetry import audit, catalogue, labels
from taskgate.telemetry.configuration import Configuration
from taskgate.telemetry.limit_takers import Concurrency, limit_takers
from taskgate.telemetry.series import Registry, Takers
from taskgate.telemetry.task_takers import ending_takers, task_takers
from taskgate.telemetry.upstream_takers import upstream_takers

_log = logging.getLogger(__name__)


class PrometheusAudit:
    """Counts facts, and shows the counts.

    `upstreams` maps the mounts that facts name to the labels of their upstreams; any other mount is `_OTHER`, and so is
    an issuer that is not one of the names `issuers`, and a rate policy that is none of `policies`. `backend` names the
    store, `revision` the source that was built.
    """

    def __init__(
        self,
        *,
        upstreams: Mapping[str, str],
        issuers: Collection[str] = (),
        policies: Collection[str] = (),
        backend: str,
        revision: str = "unknown",
        clock: Clock | None = None,
    ) -> None:
        self._registry = registry = Registry()
        registry.adopt(upstreams, issuers, policies)
        clock = clock or SystemClock()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry.collectors)
        registry.gauge(catalogue.BUILD)[__version__, revision, platform.python_version()].set(1)
        self._ready = registry.gauge(catalogue.READY)[()]
        self._draining = registry.gauge(catalogue.DRAINING)[()]
        self._lag = registry.histogram(catalogue.LAG)[()]
        self._penalized = registry.gauge(catalogue.PENALIZED)[()]
        self._configuration = Configuration(registry, clock)
        self._concurrency = Concurrency(registry)
        self._takers: Takers = {
            **_http_takers(registry),
            **_message_takers(registry),
            **task_takers(registry),
            **ending_takers(registry),
            **upstream_takers(registry),
            **limit_takers(registry),
            **self._concurrency.takers(),
            **_key_takers(registry, clock),
            **_caller_takers(registry),
            **_store_takers(registry, backend, self._concurrency.count_unfinished),
            **self._configuration.takers(),
        }

    def record(self, fact: audit.Fact) -> None:
        """Count a fact. Never raises, never waits."""
        try:
            self._takers[type(fact)](fact)
        except Exception:
            _log.exception("a fact was not counted", extra={"fact": type(fact).__name__})

    def show_ready(self, ready: bool) -> None:
        """Show what the gateway last said of itself."""
        self._ready.set(ready)

    def show_draining(self) -> None:
        """Show that the gateway is shutting down: it is not ready from here on."""
        self._draining.set(1)
        self._ready.set(0)

    def adopt(self, *, upstreams: Mapping[str, str], issuers: Collection[str], policies: Collection[str]) -> None:
        """Take these names for the configured ones from now on: of those that are gone only the counters stay."""
        self._registry.adopt(upstreams, issuers, policies)

    def show_configuration(self, fingerprint: int) -> None:
        """Show the configuration that the gateway begins with; every later one is a fact."""
        self._configuration.begin(fingerprint)

    def show_task_limit(self, limit: int | None) -> None:
        """Show how many unfinished tasks there may be in all; None where there is no limit."""
        self._concurrency.limit_tasks(limit)

    def observe_lag(self, seconds: float) -> None:
        """Count how late the event loop came to something."""
        self._lag.observe(seconds)

    def watch_penalties(self, count: Callable[[], int]) -> None:
        """Ask `count` at every render how many callers are penalized; until then none are.

        It is asked on the thread that renders, so it must be safe there, and it must not raise.
        """
        self._penalized.set_function(count)

    def render(self, accept: str | None) -> tuple[bytes, str]:
        """Everything as a scrape wants it, and its content type; `accept` is the scraper's header.

        Takes about 8 µs a series: call it on a thread of its own.
        """
        return self._registry.render(accept)


def _http_takers(registry: Registry) -> Takers:
    requests = registry.histogram(catalogue.HTTP)
    rejections = registry.counter(catalogue.REJECTIONS)
    streams = registry.gauge(catalogue.STREAMS)

    def answered(fact: audit.HttpAnswered) -> None:
        requests[fact.route, fact.verb, fact.status].observe(fact.seconds)

    def refused(fact: audit.HttpRefused) -> None:
        rejections[fact.reason,].inc()

    def opened(fact: audit.StreamOpened) -> None:
        streams[fact.side, fact.kind].inc()

    def ended(fact: audit.StreamEnded) -> None:
        streams[fact.side, fact.kind].dec()

    return {
        audit.HttpAnswered: answered,
        audit.HttpRefused: refused,
        audit.StreamOpened: opened,
        audit.StreamEnded: ended,
    }


def _message_takers(registry: Registry) -> Takers:
    served = registry.histogram(catalogue.SERVED)
    protocols = registry.counter(catalogue.PROTOCOLS)
    called = registry.histogram(catalogue.CALLED)
    tool_calls = registry.counter(catalogue.TOOL_CALLS)
    tools = registry.tools()
    sessions_lost = registry.counter(catalogue.SESSIONS_LOST)

    def rpc_answered(fact: audit.RpcAnswered) -> None:
        served[fact.mount, fact.method, fact.error].observe(fact.seconds)
        protocols[fact.revision,].inc()

    def upstream_answered(fact: audit.UpstreamAnswered) -> None:
        called[fact.mount, fact.method, fact.error].observe(fact.seconds)

    def tool_called(fact: audit.ToolCalled) -> None:
        tool_calls[fact.mount, tools.label(fact.mount, fact.tool), fact.disposition].inc()

    def session_lost(fact: audit.SessionLost) -> None:
        sessions_lost[fact.mount,].inc()

    return {
        audit.RpcAnswered: rpc_answered,
        audit.UpstreamAnswered: upstream_answered,
        audit.ToolCalled: tool_called,
        audit.SessionLost: session_lost,
    }


def _key_takers(registry: Registry, clock: Clock) -> Takers:
    refreshes = registry.counter(catalogue.KEY_REFRESHES)
    usable = registry.gauge(catalogue.KEYS)
    last_success = registry.gauge(catalogue.KEYS_FETCHED)

    def fetched(fact: audit.KeysFetched) -> None:
        refreshes[fact.issuer, fact.result].inc()
        usable[fact.issuer,].set(fact.keys)
        if fact.result == "ok":
            last_success[fact.issuer,].set(clock.now().timestamp())

    return {audit.KeysFetched: fetched}


def _caller_takers(registry: Registry) -> Takers:
    requests = registry.counter(catalogue.AUTH_REQUESTS)
    refusals = registry.counter(catalogue.ACCESS_REFUSALS)
    credentials = registry.histogram(catalogue.CREDENTIALS)
    enumerations = registry.counter(catalogue.SECURITY_EVENTS)[labels.ENUMERATION,]

    def judged(fact: audit.TokenJudged) -> None:
        requests[fact.issuer, fact.reason == "ok", fact.reason].inc()

    def refused(fact: audit.AccessRefused) -> None:
        refusals[fact.mount, fact.method, fact.shadow].inc()

    def credentials_got(fact: audit.CredentialsGot) -> None:
        credentials[fact.mount, fact.ok].observe(fact.seconds)

    def suspected(_fact: audit.EnumerationSuspected) -> None:
        enumerations.inc()

    return {
        audit.TokenJudged: judged,
        audit.AccessRefused: refused,
        audit.CredentialsGot: credentials_got,
        audit.EnumerationSuspected: suspected,
    }


def _store_takers(registry: Registry, backend: str, count_unfinished: Callable[[int], None]) -> Takers:
    operations = registry.histogram(catalogue.STORE_OPERATIONS)
    up = registry.gauge(catalogue.STORE_UP)
    size = registry.gauge(catalogue.STORE_SIZE)
    tasks = registry.gauge(catalogue.STORE_TASKS)
    was_up: bool | None = None

    def used(fact: audit.StoreUsed) -> None:
        nonlocal was_up
        operations[backend, fact.operation, fact.ok].observe(fact.seconds)
        if fact.ok is not was_up:
            was_up = fact.ok
            up[backend,].set(fact.ok)

    def counted(fact: audit.StoreCounted) -> None:
        for status in TaskStatus:
            tasks[status,].set(fact.tasks.get(status, 0))
        count_unfinished(sum(count for status, count in fact.tasks.items() if not status.is_terminal))
        if fact.size is not None:
            size[backend,].set(fact.size)

    return {audit.StoreUsed: used, audit.StoreCounted: counted}
