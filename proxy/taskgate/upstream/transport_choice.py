"""Choice of the transport to one server: `choose_transport` builds it from the settings.

`wiring.build` calls it and gives the `TransportChoice` to `HttpUpstream`.
"""

from collections.abc import Callable
from typing import NamedTuple

from taskgate.upstream.base import Transport
from taskgate.upstream.duplex.transport import ChannelTransport
from taskgate.upstream.passive_health import PassiveHealth
from taskgate.upstream.settings import StdioSettings, TransportKind, UpstreamObserver, UpstreamSettings
from taskgate.upstream.sse.channel import SseChannelProvider
from taskgate.upstream.stdio.pool import StdioChannels
from taskgate.upstream.stdio.starting import Program
from taskgate.upstream.stdio.supervisor_client import Supervisor
from taskgate.upstream.wire.transport import HttpTransport


def _nobody_knows() -> bool | None:
    return None


class TransportChoice(NamedTuple):
    """The transport to one server. `asks_whose`: every request must name its principal.

    `up` returns whether the server is up, as far as the transport has noticed; None if unknown.
    """

    transport: Transport | ChannelTransport
    asks_whose: bool = False
    up: Callable[[], bool | None] = _nobody_knows


def choose_transport(settings: UpstreamSettings, observer: UpstreamObserver, supervisor: Supervisor) -> TransportChoice:
    """Return the transport of these settings; `supervisor` starts programs. Raises TlsFileRefused."""
    if settings.stdio is not None:
        return _to_program(settings, settings.stdio, observer, supervisor)
    if settings.transport is TransportKind.SSE:
        return TransportChoice(ChannelTransport(SseChannelProvider(settings, observer.retried), is_modern=False))
    return TransportChoice(HttpTransport(settings, observer.retried))


def _to_program(
    settings: UpstreamSettings, stdio: StdioSettings, observer: UpstreamObserver, supervisor: Supervisor
) -> TransportChoice:
    program = Program(
        name=settings.name,
        settings=stdio,
        limit=settings.max_result,
        connect=settings.connect,
        restarted=lambda cause: observer.restarted(cause.value),
        running=observer.programs,
    )
    health = PassiveHealth(observer.sought)
    transport = ChannelTransport(StdioChannels(program, supervisor), health)
    return TransportChoice(transport, asks_whose=True, up=lambda: health.up)
