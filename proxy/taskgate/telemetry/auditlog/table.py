"""Which fact becomes which events of the audit log, found by the fact's type.

What is for metrics alone is not in the table, and costs one look-up. What must not live here: what an event is called
and how severe it is (`catalogue`), and how a line looks.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from taskgate.telemetry import events
from taskgate.telemetry.auditlog import request_events, task_events
from taskgate.telemetry.auditlog.catalogue import FAILURE, SUCCESS
from taskgate.telemetry.auditlog.rendering import LineOptions
from taskgate.telemetry.auditlog.request_events import NOTHING, RequestEvents, Told, told
from taskgate.telemetry.auditlog.task_events import Tasks
from taskgate.telemetry.request_context import RequestContext

Teller = Callable[[Any, RequestContext | None, datetime], Told]


class EventTable:
    """Makes events of facts, for lines that are told as `telling` says.

    It remembers which servers were thought to be well, since that is told when it changes.
    """

    def __init__(self, telling: LineOptions, *, before: "EventTable | None" = None) -> None:
        """`before` is the one whose place it takes."""
        keeps = telling.arguments != "none"
        shows, hashes = telling.results != "none", telling.results == "hash"
        requests = RequestEvents(keeps_arguments=keeps)
        tasks = Tasks(keeps_arguments=keeps, shows_results=shows, hashes_results=hashes)
        self._up: dict[str, bool] = {} if before is None else before._up
        self.tellers: Mapping[type, Teller] = {
            **_CONSTANT,
            events.HttpAnswered: requests.answered,
            events.PartAnswered: requests.part_answered,
            events.TaskCreated: tasks.created,
            events.TaskFinished: tasks.finished,
            events.UpstreamBegun: self._upstream_begun,
            events.HealthChecked: self._seen,
            events.ProgramSought: self._seen,
        }
        """What makes events of a fact, by its type; of a type that is not here there is nothing to say."""

    def _upstream_begun(self, fact: events.UpstreamBegun, _: RequestContext | None, __: datetime) -> Told:
        self._up.pop(fact.mount, None)
        return NOTHING

    def _seen(self, fact: events.HealthChecked | events.ProgramSought, _: RequestContext | None, now: datetime) -> Told:
        if fact.up is None or fact.up is self._up.get(fact.mount):
            return NOTHING
        self._up[fact.mount] = fact.up
        if fact.up:
            return told("upstream.up", SUCCESS, None, now, None, mount=fact.mount)
        return told("upstream.down", FAILURE, None, now, None, mount=fact.mount)


def _circuit_moved(fact: events.CircuitMoved, _: RequestContext | None, now: datetime) -> Told:
    if fact.state == "open":
        return told("upstream.circuit_opened", FAILURE, None, now, None, mount=fact.mount)
    if fact.state == "closed":
        return told("upstream.circuit_closed", SUCCESS, None, now, None, mount=fact.mount)
    # Half open it is tried, which is no news yet.
    return NOTHING


def _session_lost(fact: events.SessionLost, _: RequestContext | None, now: datetime) -> Told:
    return told("upstream.session_lost", FAILURE, None, now, None, mount=fact.mount)


def _program_restarted(fact: events.ProgramRestarted, _: RequestContext | None, now: datetime) -> Told:
    return told("upstream.restarted", FAILURE, fact.cause, now, None, mount=fact.mount)


def _credentials_got(fact: events.CredentialsGot, _: RequestContext | None, now: datetime) -> Told:
    name, outcome = ("credential.exchanged", SUCCESS) if fact.ok else ("credential.failed", FAILURE)
    return told(name, outcome, None, now, None, mount=fact.mount, data={"seconds": fact.seconds})


def _keys_fetched(fact: events.KeysFetched, _: RequestContext | None, now: datetime) -> Told:
    facts = {"issuer": fact.issuer, "keys": fact.keys}
    if fact.result == "ok":
        return told("auth.jwks_refreshed", SUCCESS, None, now, None, data=facts)
    return told("auth.jwks_failed", FAILURE, fact.result, now, None, data=facts)


def _rates_fell_back(fact: events.RatesFellBack, _: RequestContext | None, now: datetime) -> Told:
    return told("limit.store_fallback", FAILURE, "store", now, None, data={"rule": fact.rule})


def _gateway_moved(fact: events.GatewayMoved, _: RequestContext | None, now: datetime) -> Told:
    facts = {"version": fact.version, "fingerprint": _fingerprint(fact.fingerprint)}
    return told(f"gateway.{fact.phase}", SUCCESS, None, now, None, data=facts)


def _config_reloaded(fact: events.ConfigReloaded, _: RequestContext | None, now: datetime) -> Told:
    fingerprint = _fingerprint(fact.fingerprint)
    if fact.result == "invalid":
        facts = {"fingerprint": fingerprint, "problems": list(fact.problems[:_MOST])}
        return told("config.rejected", FAILURE, fact.result, now, None, data=facts)
    facts = {"fingerprint": fingerprint, "waits": list(fact.waits[:_MOST])}
    reason = None if fact.result == "success" else fact.result
    return told("config.loaded", SUCCESS, reason, now, None, data=facts)


def _fingerprint(number: int) -> str:
    return f"{number:012x}"


_MOST: Final = 32
"""How many problems, or keys, one line has."""

_CONSTANT: Final[dict[type, Teller]] = {
    events.TokenJudged: request_events.token_judged,
    events.AccessRefused: request_events.access_refused,
    events.TaskDenied: request_events.task_denied,
    events.SuspicionRaised: request_events.suspicion_raised,
    events.RateJudged: request_events.rate_judged,
    events.CapRefused: request_events.cap_refused,
    events.QueueRefused: request_events.queue_refused,
    events.CallJoined: request_events.call_joined,
    events.OperatorAsked: request_events.operator_asked,
    events.TaskDispatched: task_events.dispatched,
    events.TaskMoved: task_events.moved,
    events.TaskExpired: task_events.expired,
    events.TaskPurged: task_events.purged,
    events.TaskCancelAsked: task_events.cancel_asked,
    events.TaskRecovered: task_events.recovered,
    events.TaskRetrieved: task_events.retrieved,
    events.InputAsked: task_events.input_asked,
    events.InputSettled: task_events.input_settled,
    events.WouldPromote: task_events.would_promote,
    events.CircuitMoved: _circuit_moved,
    events.SessionLost: _session_lost,
    events.ProgramRestarted: _program_restarted,
    events.CredentialsGot: _credentials_got,
    events.RatesFellBack: _rates_fell_back,
    events.KeysFetched: _keys_fetched,
    events.GatewayMoved: _gateway_moved,
    events.ConfigReloaded: _config_reloaded,
}
"""For what is the same whatever is told, and needs no memory."""
