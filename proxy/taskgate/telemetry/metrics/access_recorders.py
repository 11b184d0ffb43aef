"""Events about who asks, and what they may, become metrics: one short function an event; see `metrics`."""

from taskgate.clock import Clock
from taskgate.telemetry import events
from taskgate.telemetry.metrics import limit_families
from taskgate.telemetry.metrics.registry import Registry
from taskgate.telemetry.metrics.series import Takers


def key_takers(registry: Registry, clock: Clock) -> Takers:
    """For the keys of issuers."""
    refreshes = registry.counter(limit_families.KEY_REFRESHES)
    usable = registry.gauge(limit_families.KEYS)
    last_success = registry.gauge(limit_families.KEYS_FETCHED)

    def fetched(event: events.KeysFetched) -> None:
        refreshes[event.issuer, event.result].inc()
        usable[event.issuer,].set(event.keys)
        if event.result == "ok":
            last_success[event.issuer,].set(clock.now().timestamp())

    return {events.KeysFetched: fetched}


def access_takers(registry: Registry) -> Takers:
    """For tokens, rules and suspicions."""
    requests = registry.counter(limit_families.AUTH_REQUESTS)
    remembered = registry.counter(limit_families.TOKEN_CACHE)
    refusals = registry.counter(limit_families.ACCESS_REFUSALS)
    suspicions = registry.counter(limit_families.SECURITY_EVENTS)

    def judged(event: events.TokenChecked) -> None:
        requests[event.issuer, event.reason == "ok", event.reason].inc()
        if event.known is not None:
            remembered[event.known,].inc()

    def refused(event: events.AccessRefused) -> None:
        refusals[event.mount, event.method, event.shadow].inc()

    def raised(event: events.SuspicionRaised) -> None:
        suspicions[event.kind,].inc()

    return {
        events.TokenChecked: judged,
        events.AccessRefused: refused,
        events.SuspicionRaised: raised,
    }
