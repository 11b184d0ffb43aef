"""Requests that are over, as events: what metrics count of their answers."""

from taskgate.telemetry.request_context import RequestContext


def http_answered(route: str, verb: str, status: int, seconds: float) -> RequestContext:
    """A request without a message, which HTTP answered."""
    request_context = RequestContext("", "", verb, "")
    request_context.route, request_context.status, request_context.seconds = route, status, seconds
    return request_context


def rpc_answered(mount: str, method: str, revision: str | None, seconds: float, error: str | None) -> RequestContext:
    """A JSON-RPC request of a batch, which has no answer of HTTP."""
    request_context = RequestContext("", "", "POST", "")
    request_context.mount, request_context.method, request_context.rpc_revision = mount, method, revision
    request_context.rpc_seconds, request_context.error = seconds, error
    return request_context
