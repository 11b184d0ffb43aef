"""Lines in the words of the Elastic Common Schema."""

from typing import Any

import pytest

from taskgate import __version__
from taskgate.telemetry import events
from unit.telemetry.auditlog.told_events import (
    ANSWERED,
    FIRST_USE,
    SetSpan,
    line_of,
    lines,
    new_visit,
    of_task,
    of_the_log,
)

KEYWORDS = {
    "ecs.version", "event.kind", "event.action", "event.outcome", "event.reason", "event.provider", "event.module",
    "event.dataset", "service.name", "service.type", "service.version", "service.node.name", "source.address",
    "user.id", "organization.id", "user_agent.original", "http.request.id", "http.request.method", "url.path",
    "trace.id", "span.id", "message", "@timestamp", "source.ip",
}  # fmt: skip
NUMBERS = {"event.severity", "event.duration", "http.response.status_code"}
ARRAYS = {"event.category", "event.type", "related.ip", "related.user"}
"""The fields of ECS 8.17 that are used, by what a document may have there."""
TYPES = {
    "api": {"access", "admin", "allowed", "change", "creation", "deletion", "denied", "end", "info", "start", "user"},
    "authentication": {"end", "info", "start"},
    "configuration": {"access", "change", "creation", "deletion", "info"},
    "intrusion_detection": {"allowed", "denied", "info"},
    "network": {"access", "allowed", "connection", "denied", "end", "info", "protocol", "start"},
    "process": {"access", "change", "end", "info", "start"},
}
"""What `event.type` may be in each category that is used."""


def flat(document: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(document, dict):
        return {name: document}
    return {key: value for each in document for key, value in flat(document[each], f"{name}.{each}".strip(".")).items()}


def test_every_line_has_fields_of_the_schema_alone() -> None:
    for line in (*lines(format="ecs"), *of_the_log("ecs")):
        line.pop("taskgate")
        fields = flat(line)
        assert fields.keys() <= KEYWORDS | NUMBERS | ARRAYS
        assert all(isinstance(fields[name], str) for name in fields.keys() & KEYWORDS)
        assert all(type(fields[name]) is int for name in fields.keys() & NUMBERS)
        assert all(isinstance(fields[name], list) and fields[name] for name in fields.keys() & ARRAYS)
        [category], [kind] = fields["event.category"], fields["event.type"]
        assert kind in TYPES[category]
        assert fields["event.kind"] in ("event", "alert")
        assert fields["event.outcome"] in ("success", "failure")


def test_a_call_is_an_api_event() -> None:
    line = line_of(ANSWERED, new_visit(span=SetSpan()), format="ecs")
    del line["taskgate"]
    assert line == {
        "@timestamp": "2026-11-21T01:22:03.123456Z",
        "ecs": {"version": "8.17.0"},
        "message": "A `tools/call` was let in and answered.",
        "event": {
            "kind": "event", "category": ["api"], "type": ["access"], "action": "rpc.call", "outcome": "success",
            "severity": 1, "duration": 250_000_000, "provider": "taskgate", "module": "taskgate",
            "dataset": "taskgate.audit",
        },
        "service": {"name": "taskgate", "type": "taskgate", "version": __version__, "node": {"name": "gw-1"}},
        "source": {"address": "203.0.113.9", "ip": "203.0.113.9"},
        "user": {"id": "user-17"},
        "organization": {"id": "acme"},
        "user_agent": {"original": "host/1.0"},
        "http": {"request": {"id": "abcdefgh-1", "method": "POST"}, "response": {"status_code": 200}},
        "url": {"path": "/reports/mcp"},
        "trace": {"id": SetSpan.trace_id},
        "span": {"id": SetSpan.span_id},
        "related": {"ip": ["203.0.113.9"], "user": ["user-17"]},
    }  # fmt: skip


def test_what_is_refused_is_denied_and_what_is_suspected_an_alert() -> None:
    refused = line_of(ANSWERED, new_visit(refusal="rate", address="unix"), format="ecs")
    assert (refused["event"]["type"], refused["event"]["reason"]) == (["denied"], "rate")
    assert refused["source"] == {"address": "unix"}
    suspected = line_of(events.SuspicionRaised("header_mismatch", "reports"), new_visit(), format="ecs")
    assert (suspected["event"]["kind"], suspected["event"]["type"]) == ("alert", ["denied"])


@pytest.mark.parametrize(
    ("reported", "category", "kind"),
    [
        (events.ConfigReloaded("success", 1), "configuration", "change"),
        (events.GatewayPhaseChanged("stopped", "1.0", 1), "process", "end"),
        (events.SessionLost("reports"), "network", "info"),
        (events.TaskPurged(of_task()), "api", "deletion"),
        (FIRST_USE, "authentication", "start"),
    ],
)
def test_what_happened_has_a_category_and_a_type(reported: events.Event, category: str, kind: str) -> None:
    event = line_of(reported, None, format="ecs")["event"]
    assert (event["category"], event["type"]) == ([category], [kind])
