"""Facts about how servers do become metrics: one short function a fact; see `metrics`."""

from taskgate.telemetry import audit, catalogue
from taskgate.telemetry.series import Registry, Takers


def upstream_takers(registry: Registry) -> Takers:
    """For what becomes of servers, and of what could not leave for them."""
    retries = registry.counter(catalogue.RETRIES)
    open_circuits = registry.gauge(catalogue.CIRCUIT_OPEN)
    checks = registry.counter(catalogue.HEALTH_CHECKS)
    up = registry.gauge(catalogue.UP)

    def begun(fact: audit.UpstreamBegun) -> None:
        open_circuits[fact.mount,].set(0)
        up.forget((fact.mount,))

    def retried(fact: audit.UpstreamRetried) -> None:
        retries[fact.mount, fact.reason].inc()

    def circuit_moved(fact: audit.CircuitMoved) -> None:
        # Half open, nearly every request is refused as before.
        open_circuits[fact.mount,].set(fact.state != "closed")

    def checked(fact: audit.HealthChecked) -> None:
        checks[fact.mount, fact.ok].inc()
        if fact.up is not None:
            up[fact.mount,].set(fact.up)

    return {
        audit.UpstreamBegun: begun,
        audit.UpstreamRetried: retried,
        audit.CircuitMoved: circuit_moved,
        audit.HealthChecked: checked,
    }
