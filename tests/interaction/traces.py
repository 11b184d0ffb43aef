"""Places in a trace: one that a host names, and those that a server hears of."""

from typing import Any

from helpers.otlp_collector import Place
from helpers.server import ScriptedServer

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
THEIRS = f"00-{TRACE}-{PARENT}-01"
META = {"traceparent": THEIRS, "tracestate": "vendor=a", "baggage": "user=1"}


def place(written: str) -> Place:
    """A place, out of what stands in a traceparent."""
    _, trace, span, _ = written.split("-")
    return Place(trace, span)


def heard_by(server: ScriptedServer, method: str = "tools/call") -> dict[str, Any]:
    """What the server was told in the `_meta` of the one request of that method."""
    (message,) = server.heard(method)
    meta: dict[str, Any] = message["params"]["_meta"]
    return meta
