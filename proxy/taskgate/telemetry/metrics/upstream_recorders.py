"""Facts about how servers do become metrics: one short function a fact; see `metrics`."""

from taskgate.telemetry import audit
from taskgate.telemetry.metrics import server_families
from taskgate.telemetry.metrics.registry import Registry
from taskgate.telemetry.metrics.series import Takers


def upstream_takers(registry: Registry) -> Takers:
    """For what becomes of servers, and of what could not leave for them."""
    retries = registry.counter(server_families.RETRIES)
    open_circuits = registry.gauge(server_families.CIRCUIT_OPEN)
    checks = registry.counter(server_families.HEALTH_CHECKS)
    up = registry.gauge(server_families.UP)
    restarts = registry.counter(server_families.RESTARTS)
    processes = registry.gauge(server_families.PROCESSES)
    sessions_lost = registry.counter(server_families.SESSIONS_LOST)
    credentials = registry.histogram(server_families.CREDENTIALS)
    denied = registry.counter(server_families.EXTENSIONS_DENIED)

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

    def restarted(fact: audit.ProgramRestarted) -> None:
        restarts[fact.mount, fact.cause].inc()

    def sought(fact: audit.ProgramSought) -> None:
        up[fact.mount,].set(fact.up)

    def programs(fact: audit.ProgramsRun) -> None:
        processes[fact.mount,].set(fact.count)

    def session_lost(fact: audit.SessionLost) -> None:
        sessions_lost[fact.mount,].inc()

    def credentials_got(fact: audit.CredentialsGot) -> None:
        credentials[fact.mount, fact.ok].observe(fact.seconds)

    def extension_denied(fact: audit.ExtensionDenied) -> None:
        denied[fact.mount, fact.extension].inc()

    return {
        audit.UpstreamBegun: begun,
        audit.UpstreamRetried: retried,
        audit.CircuitMoved: circuit_moved,
        audit.HealthChecked: checked,
        audit.ProgramRestarted: restarted,
        audit.ProgramSought: sought,
        audit.ProgramsRun: programs,
        audit.SessionLost: session_lost,
        audit.CredentialsGot: credentials_got,
        audit.ExtensionDenied: extension_denied,
    }
