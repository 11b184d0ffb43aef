"""The reader of events that writes log lines about requests: `RequestLog`.

With `logging.access` each tool call has a line at `info`. At the level `debug` each request has a
line, and each request to a server. So has each refusal by a rule or a limit, and each decision of a
rate policy. Both are off by default. Then nothing subscribes, and a request costs what it did.

A line names what is in the audit log too: the request, the caller, a task by its reference. It has no
payload, and no name that the host chose. A tool is named if its server lists it, a method if the
protocol or a known extension has it.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from logging import getLogger
from typing import Any, Final

from taskgate.protocol.extensions import KNOWN_METHODS
from taskgate.protocol.messages import Request
from taskgate.protocol.vocabulary import METHODS_OF_HOSTS, TOOLS_CALL
from taskgate.telemetry import events
from taskgate.telemetry.events import CallCoalesced, Event, ToolCalled
from taskgate.telemetry.request_context import RequestContext, current
from taskgate.telemetry.ring import EventRing, Handlers

MOST: Final = 4096
"""Calls that are remembered until their request ends; of more, the oldest loses its disposition."""
_KNOWN: Final = METHODS_OF_HOSTS | KNOWN_METHODS

_access_log = getLogger("taskgate.access")
_log = getLogger("taskgate.requests")


class RequestLog:
    """The reader of one gateway. `adopt` follows each configuration.

    - `_calls`: fields of the lines of calls whose requests have not ended, the oldest first, by `_key`
    - `_failures`: the same about failures of servers, of any request
    """

    def __init__(self, event_sink: EventRing) -> None:
        self._event_sink = event_sink
        self._reference_of: Callable[[str], str] = str
        self._calls: _Fields = OrderedDict()
        self._failures: _Fields = OrderedDict()
        self._wanted = (False, False)

    def adopt(self, *, access: bool, debug: bool, reference_of: Callable[[str], str]) -> None:
        """Write these kinds of lines from now on; `reference_of` turns the id of a task into its
        reference.
        """
        self._reference_of = reference_of
        if self._wanted == (access, debug):
            return
        self._wanted = access, debug
        self._calls.clear()
        self._failures.clear()
        self._event_sink.subscribe(self, self._access_handlers() if access else {}, _DEBUG if debug else {})
        # Requests without a line in the audit log would wait for a full batch.
        self._event_sink.hasten(self, (RequestContext, *_DEBUG) if debug else (RequestContext,) if access else ())

    def note_failure(self, event: Event) -> None:
        _log.exception("an event was not logged", extra={"fact": type(event).__name__})

    def _access_handlers(self) -> Handlers:
        return {
            ToolCalled: self._note_call,
            CallCoalesced: self._note_coalesced,
            events.UpstreamRequestFailed: self._note_failure_of_server,
            RequestContext: self._log_call,
        }

    def _note_call(self, event: ToolCalled) -> None:
        _note(self._calls, {"tool": event.tool, "disposition": event.disposition})

    def _note_coalesced(self, _: CallCoalesced) -> None:
        _note(self._calls, {"coalesced": True})

    def _note_failure_of_server(self, event: events.UpstreamRequestFailed) -> None:
        _note(self._failures, {"reason": event.reason, "cause": event.cause})

    def _log_call(self, context: RequestContext) -> None:
        key = _key(context)
        call, failure = self._calls.pop(key, None), self._failures.pop(key, None)
        if failure is None and context.route is not None:
            # A call that may become a task has a context of its own, without the message.
            failure = self._failures.pop((context.id, _NO_MESSAGE), None)
        if call is None and context.method != TOOLS_CALL:
            return
        disposition = None if context.refusal is None else "rejected"
        task = None if context.task is None else self._reference_of(context.task)
        fields = {"upstream": context.mount, "disposition": disposition, "task": task} | (call or {}) | (failure or {})
        _access_log.info("a tool call was handled", extra=_present(fields) | _result_of(context))


_Fields = OrderedDict[tuple[str, int], dict[str, Any]]
"""Fields of lines by the key of their request."""
_NO_MESSAGE: Final = id(None)


def _note(lines: _Fields, fields: Mapping[str, Any]) -> None:
    """Add fields to the line of the present request, unless it has ended or is unknown."""
    context = current()
    if context is None or context.background:
        return
    key = _key(context)
    if key not in lines and len(lines) >= MOST:
        lines.popitem(last=False)
    lines.setdefault(key, {}).update(fields)


def _key(context: RequestContext) -> tuple[str, int]:
    # An event with a line in the audit log comes with a copy of its context. Messages of a batch share the id.
    return context.id, id(context.message)


def _result_of(context: RequestContext) -> dict[str, Any]:
    """The fields about the answer: HTTP status, JSON-RPC code or kind of error, refusal, milliseconds."""
    seconds = context.rpc_seconds if context.seconds is None else context.seconds
    found = {"status": context.status, "error": context.error, "refusal": context.refusal}
    return _present(found) | {"ms": _milliseconds(seconds)}


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 1)


# --- the level debug --------------------------------------------------------------------------------------------------


def _log_request(context: RequestContext) -> None:
    method = context.method
    if method is None and isinstance(context.message, Request):
        method = context.message.method
    fields = {
        "upstream": context.mount,
        "method": method if method is None or method in _KNOWN else "_OTHER",
        "revision": context.rpc_revision,
        "route": context.route,
    }
    _log.debug("a request was handled", extra=_present(fields) | _result_of(context))


def _log_upstream_request(event: events.UpstreamAnswered) -> None:
    fields = {"upstream": event.mount, "method": event.method, "error": event.error}
    _log.debug("an upstream request ended", extra=_present(fields) | {"ms": _milliseconds(event.seconds)})


def _log_retry(event: events.UpstreamRetried) -> None:
    _log.debug("an upstream request is retried", extra={"upstream": event.mount, "reason": event.reason})


def _log_access(event: events.AccessRefused) -> None:
    method = event.method if event.method in _KNOWN else "_OTHER"
    fields = {"upstream": event.mount, "method": method, "rule": event.rule, "shadow": event.shadow}
    _log.debug("an access rule refused a request", extra=_present(fields))


def _log_rate(event: events.RateLimitChecked) -> None:
    _log.debug("a rate policy decided about a request", extra=event._asdict())


def _log_allowed(event: events.RateLimitAllowed) -> None:
    _log.debug("a rate policy decided about a request", extra={**event._asdict(), "decision": "allowed"})


def _log_cap(event: events.CapRefused) -> None:
    _log.debug("a limit refused a request", extra={"limit": event.cap, "scope": event.scope})


def _log_queue(event: events.QueueRefused) -> None:
    _log.debug("the queue of an upstream refused a call", extra={"upstream": event.mount, "reason": event.reason})


def _log_lookup(event: events.TaskDenied) -> None:
    method = event.method if event.method in _KNOWN else "_OTHER"
    fields = {"upstream": event.mount, "method": method, "reason": event.reason}
    _log.debug("a look-up found no task of the caller", extra=fields)


_DEBUG: Final[Handlers] = {
    RequestContext: _log_request,
    events.UpstreamAnswered: _log_upstream_request,
    events.UpstreamRetried: _log_retry,
    events.AccessRefused: _log_access,
    events.RateLimitAllowed: _log_allowed,
    events.RateLimitChecked: _log_rate,
    events.CapRefused: _log_cap,
    events.QueueRefused: _log_queue,
    events.TaskDenied: _log_lookup,
}
