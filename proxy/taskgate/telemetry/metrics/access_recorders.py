"""Facts about who asks, and what they may, become metrics: one short function a fact; see `metrics`."""

from taskgate.clock import Clock
from taskgate.telemetry import audit
from taskgate.telemetry.metrics import limit_families
from taskgate.telemetry.metrics.registry import Registry
from taskgate.telemetry.metrics.series import Takers


def key_takers(registry: Registry, clock: Clock) -> Takers:
    """For the keys of issuers."""
    refreshes = registry.counter(limit_families.KEY_REFRESHES)
    usable = registry.gauge(limit_families.KEYS)
    last_success = registry.gauge(limit_families.KEYS_FETCHED)

    def fetched(fact: audit.KeysFetched) -> None:
        refreshes[fact.issuer, fact.result].inc()
        usable[fact.issuer,].set(fact.keys)
        if fact.result == "ok":
            last_success[fact.issuer,].set(clock.now().timestamp())

    return {audit.KeysFetched: fetched}


def access_takers(registry: Registry) -> Takers:
    """For tokens, rules and suspicions."""
    requests = registry.counter(limit_families.AUTH_REQUESTS)
    remembered = registry.counter(limit_families.TOKEN_CACHE)
    refusals = registry.counter(limit_families.ACCESS_REFUSALS)
    suspicions = registry.counter(limit_families.SECURITY_EVENTS)

    def judged(fact: audit.TokenJudged) -> None:
        requests[fact.issuer, fact.reason == "ok", fact.reason].inc()
        if fact.known is not None:
            remembered[fact.known,].inc()

    def refused(fact: audit.AccessRefused) -> None:
        refusals[fact.mount, fact.method, fact.shadow].inc()

    def raised(fact: audit.SuspicionRaised) -> None:
        suspicions[fact.kind,].inc()

    return {
        audit.TokenJudged: judged,
        audit.AccessRefused: refused,
        audit.SuspicionRaised: raised,
    }
