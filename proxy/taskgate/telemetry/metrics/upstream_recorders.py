"""Events about how servers do become metrics: one short function an event; see `metrics`."""

from taskgate.telemetry import events
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

    def begun(event: events.UpstreamAdded) -> None:
        open_circuits[event.mount,].set(0)
        up.forget((event.mount,))

    def retried(event: events.UpstreamRetried) -> None:
        retries[event.mount, event.reason].inc()

    def circuit_moved(event: events.CircuitChanged) -> None:
        # Half open, nearly every request is refused as before.
        open_circuits[event.mount,].set(event.state != "closed")

    def checked(event: events.HealthChecked) -> None:
        checks[event.mount, event.ok].inc()
        if event.up is not None:
            up[event.mount,].set(event.up)

    def restarted(event: events.ProgramRestarted) -> None:
        restarts[event.mount, event.cause].inc()

    def sought(event: events.ProgramAvailabilityChanged) -> None:
        up[event.mount,].set(event.up)

    def programs(event: events.ProgramsCounted) -> None:
        processes[event.mount,].set(event.count)

    def session_lost(event: events.SessionLost) -> None:
        sessions_lost[event.mount,].inc()

    def credentials_got(event: events.CredentialsFetched) -> None:
        credentials[event.mount, event.ok].observe(event.seconds)

    def extension_denied(event: events.ExtensionDenied) -> None:
        denied[event.mount, event.extension].inc()

    return {
        events.UpstreamAdded: begun,
        events.UpstreamRetried: retried,
        events.CircuitChanged: circuit_moved,
        events.HealthChecked: checked,
        events.ProgramRestarted: restarted,
        events.ProgramAvailabilityChanged: sought,
        events.ProgramsCounted: programs,
        events.SessionLost: session_lost,
        events.CredentialsFetched: credentials_got,
        events.ExtensionDenied: extension_denied,
    }
