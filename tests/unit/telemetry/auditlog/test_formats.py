"""The formats OCSF and ECS, and the native document in each of their lines."""

from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from taskgate import __version__
from taskgate.telemetry import events
from taskgate.telemetry.auditlog.catalogue import EVENTS
from taskgate.telemetry.auditlog.formats import ocsf
from taskgate.telemetry.auditlog.formats.renderer import native_part
from unit.telemetry.auditlog.audit_cases import (
    ANSWERED,
    CALLER,
    FIRST_USE,
    TASK_ID,
    SetSpan,
    line_of,
    lines,
    message_text,
    new_context,
    of_task,
    of_the_log,
)

PRODUCT = {"name": "taskgate", "vendor_name": "taskgate", "version": __version__}


@pytest.mark.parametrize("format", ["ocsf", "ecs"])
def test_ours_is_in_every_line_whole(format: str) -> None:
    assert [native_part(line) for line in lines(format=format)] == lines()
    assert [native_part(line) for line in of_the_log(format)] == of_the_log("native")


@pytest.mark.parametrize("document", [{}, {"unmapped": 1}, {"event": "x"}, {"taskgate": {"event": {}}}, {"v": 1}])
def test_nothing_of_ours_is_in_what_is_no_line(document: dict[str, Any]) -> None:
    assert native_part(document) is None


# --- OCSF ------------------------------------------------------------------------------------------------------------


@cache
def judge(class_uid: int) -> Draft202012Validator:
    """The published schema of a class."""
    published = OcsfJsonSchemaEmbedded(get_ocsf_schema(version=ocsf.VERSION))
    name = published.lookup_class_name_from_uid(class_uid)
    return Draft202012Validator(published.get_class_schema(name))


def test_every_line_keeps_to_the_published_schema_of_its_class() -> None:
    for line in (*lines(format="ocsf"), *of_the_log("ocsf")):
        faults = [f"{fault.json_path}: {fault.message}" for fault in judge(line["class_uid"]).iter_errors(line)]
        assert (line["metadata"]["event_code"], faults) == (line["metadata"]["event_code"], [])


def test_the_published_schema_is_no_rubber_stamp() -> None:
    line = line_of(ANSWERED, new_context(), format="ocsf")
    for part in ("api", "actor", "src_endpoint", "metadata", "time", "type_uid"):
        assert list(judge(6003).iter_errors({name: value for name, value in line.items() if name != part}))
    assert list(judge(6003).iter_errors({**line, "class_uid": 3002}))


def test_a_call_is_api_activity() -> None:
    line = line_of(ANSWERED, new_context(span=SetSpan(), task=TASK_ID), format="ocsf")
    own = line.pop("unmapped")
    assert line == {
        "activity_id": 99, "activity_name": "rpc.call", "category_uid": 6, "class_uid": 6003, "type_uid": 600399,
        "time": 1795224123123, "severity_id": 1, "message": "A `tools/call` was let in and answered.",
        "status_id": 1, "status": "Success", "duration": 250,
        "metadata": {
            "version": "1.8.0", "product": PRODUCT, "log_name": "audit", "log_provider": "gw-1",
            "event_code": "rpc.call", "original_time": "2026-11-21T01:22:03.123456Z",
            "correlation_uid": "abcdefgh-1", "tenant_uid": "acme",
        },
        "api": {
            "operation": "tools/call", "version": "2026-07-28", "request": {"uid": "7"}, "service": {"name": "reports"},
        },
        "actor": {
            "user": {
                "uid": f"c_{CALLER.key}", "name": "user-17", "credential_uid": "a1b2", "org": {"uid": "acme"},
            },
            "app_uid": "agent-a",
            "idp": {"name": "https://idp.example.com/", "issuer": "https://idp.example.com/"},
        },
        "src_endpoint": {"ip": "203.0.113.9"},
        "dst_endpoint": {"svc_name": "reports"},
        "http_request": {
            "uid": "abcdefgh-1", "http_method": "POST", "user_agent": "host/1.0", "url": {"path": "/reports/mcp"},
        },
        "http_response": {"code": 200},
        "resources": [{"type": "tool", "name": "build_report"}, {"type": "task", "uid": own["task"]["ref"]}],
        "trace": {"uid": SetSpan.trace_id},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("method", "activity"), [("tools/list", 2), ("tasks/get", 2), ("resources/read", 2), ("tasks/cancel", 99)]
)
def test_what_changes_nothing_is_told_as_read(method: str, activity: int) -> None:
    assert line_of(ANSWERED, new_context(message_text(method)), format="ocsf")["activity_id"] == activity


USER = {"uid": f"c_{CALLER.key}", "name": "user-17", "credential_uid": "a1b2", "org": {"uid": "acme"}}
ACTOR = {
    "user": USER, "app_uid": "agent-a",
    "idp": {"name": "https://idp.example.com/", "issuer": "https://idp.example.com/"},
}  # fmt: skip


def own_words(line: dict[str, Any]) -> dict[str, Any]:
    """What a line has that not every line has."""
    usual = {"category_uid", "class_uid", "time", "message", "metadata", "unmapped"}
    return {name: value for name, value in line.items() if name not in usual}


def test_a_token_is_authentication() -> None:
    accepted = line_of(FIRST_USE, new_context(caller=None), format="ocsf")
    assert own_words(accepted) == {
        "activity_id": 1, "type_uid": 300201, "severity_id": 1, "status_id": 1, "status": "Success",
        "auth_protocol_id": 6, "auth_protocol": "OAUTH 2.0", "is_remote": True, "actor": ACTOR, "user": USER,
        "service": {"name": "reports"}, "src_endpoint": {"ip": "203.0.113.9"},
        "http_request": {
            "uid": "abcdefgh-1", "http_method": "POST", "user_agent": "host/1.0", "url": {"path": "/reports/mcp"},
        },
    }  # fmt: skip
    refused = line_of(events.TokenChecked("corp", "expired"), None, format="ocsf")
    assert own_words(refused) == {
        "activity_id": 1, "type_uid": 300201, "severity_id": 2, "status_id": 2, "status": "Failure",
        "status_detail": "expired", "auth_protocol_id": 6, "auth_protocol": "OAUTH 2.0", "is_remote": True,
        "actor": {"app_name": "taskgate"}, "user": {"name": "unknown"}, "service": {"name": "taskgate"},
        "src_endpoint": {"svc_name": "taskgate", "name": "gw-1"},
    }  # fmt: skip


def test_a_suspicion_is_a_finding() -> None:
    suspicion = events.SuspicionRaised("auth_bruteforce", "reports")
    assert own_words(line_of(suspicion, new_context(), format="ocsf")) == {
        "activity_id": 1, "type_uid": 200401, "severity_id": 4, "status_id": 1, "status": "New",
        "status_detail": "auth_bruteforce", "is_alert": True,
        "finding_info": {
            "uid": "security.auth_bruteforce:abcdefgh-1", "types": ["security.auth_bruteforce"],
            "title": "An address sends many tokens that are not accepted.",
        },
        "evidences": [{"actor": ACTOR, "src_endpoint": {"ip": "203.0.113.9"}}],
    }  # fmt: skip
    assert line_of(suspicion, None, format="ocsf")["finding_info"]["uid"] == "security.auth_bruteforce"


def test_a_task_is_a_resource_of_its_owner() -> None:
    line = line_of(events.TaskDispatched(of_task(), timedelta(0)), None, format="ocsf")
    assert line["resources"] == [
        {"type": "tool", "name": "build_report"},
        {"type": "task", "uid": line["unmapped"]["task"]["ref"], "owner": {"uid": f"c_{CALLER.key}"}},
    ]


@pytest.mark.parametrize(
    ("peer", "told"),
    [("2001:db8::1", {"ip": "2001:db8::1"}), ("fe80::1%eth0", {"name": "fe80::1%eth0"}), ("unix", {"name": "unix"})],
)
def test_a_peer_without_a_plain_address_is_told_by_name(peer: str, told: dict[str, str]) -> None:
    assert line_of(ANSWERED, new_context(address=peer), format="ocsf")["src_endpoint"] == told


@pytest.mark.parametrize(
    ("event", "type_uid"),
    [
        (events.GatewayPhaseChanged("started", "1.0", 1), 600203),
        (events.GatewayPhaseChanged("stopping", "1.0", 1), 600299),
        (events.GatewayPhaseChanged("stopped", "1.0", 1), 600204),
        (events.ConfigReloaded("success", 1), 600208),
        (events.KeysFetched("corp", "failed", 0), 600208),
        (events.CredentialsFetched("reports", 0.5, True), 300204),
    ],
)
def test_what_is_of_the_gateway_is_its_life(event: events.Event, type_uid: int) -> None:
    line = line_of(event, None, format="ocsf")
    assert line["type_uid"] == type_uid
    if type_uid // 100 == 6002:
        assert line["app"] == PRODUCT


def test_a_server_is_an_application_and_the_log_an_event_log() -> None:
    line = line_of(events.SessionLost("reports"), None, format="ocsf")
    assert (line["type_uid"], line["app"]) == (600299, {"name": "reports", "vendor_name": "unknown"})
    assert [each["type_uid"] for each in of_the_log("ocsf")] == [100806, 100899, 100899]
    assert {(each["log_name"], each["log_provider"]) for each in of_the_log("ocsf")} == {("audit", "taskgate")}


def test_what_the_gateway_does_of_its_own_accord_comes_from_it() -> None:
    line = line_of(events.TaskPurged(of_task()), None, format="ocsf")
    assert (line["src_endpoint"], line["activity_id"]) == ({"svc_name": "taskgate", "name": "gw-1"}, 4)
    assert line["actor"] == {"user": {"uid": f"c_{CALLER.key}"}}


@pytest.mark.parametrize("format", ["ocsf", "ecs"])
def test_every_event_has_a_place_in_it(format: str) -> None:
    documents = [*lines(format=format), *of_the_log(format)]
    assert {(native_part(document) or {})["event"] for document in documents} == EVENTS.keys()


# --- ECS -------------------------------------------------------------------------------------------------------------


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
    line = line_of(ANSWERED, new_context(span=SetSpan()), format="ecs")
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
    refused = line_of(ANSWERED, new_context(refusal="rate", address="unix"), format="ecs")
    assert (refused["event"]["type"], refused["event"]["reason"]) == (["denied"], "rate")
    assert refused["source"] == {"address": "unix"}
    suspected = line_of(events.SuspicionRaised("header_mismatch", "reports"), new_context(), format="ecs")
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
