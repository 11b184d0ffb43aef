"""The ECS format of audit lines: `document` translates a native document. Pure.

ECS is the Elastic Common Schema, here 8.17. The native document is under `taskgate`.
"""

from collections.abc import Mapping
from typing import Any, Final

from taskgate import __version__
from taskgate.telemetry.auditlog.catalogue import DENIED, EVENTS, HIGH, INFO, LOW, MEDIUM, SUCCESS
from taskgate.telemetry.auditlog.formats.ocsf import is_address

VERSION: Final = "8.17.0"
"""The version of the schema."""

_CATEGORIES: Final = {
    "rpc": "api",
    "call": "api",
    "task": "api",
    "limit": "api",
    "access": "api",
    "admin": "api",
    "auth": "authentication",
    "credential": "authentication",
    "security": "intrusion_detection",
    "gateway": "process",
    "config": "configuration",
    "upstream": "network",
    "audit": "process",
}
"""The ECS category of each topic."""
_TYPES: Final = {
    "rpc.call": "access",
    "rpc.request": "access",
    "admin.request": "admin",
    "auth.accepted": "start",
    "auth.rejected": "start",
    "task.created": "creation",
    "task.purged": "deletion",
    "task.result_retrieved": "access",
    "task.transition": "change",
    "gateway.started": "start",
    "gateway.stopped": "end",
    "config.loaded": "change",
}
"""The ECS type of events whose type is not `info`."""
_SEVERITIES: Final = {INFO: 1, LOW: 2, MEDIUM: 3, HIGH: 4}
_SERVICE: Final = {"name": "taskgate", "type": "taskgate", "version": __version__}


def document(native: dict[str, Any]) -> dict[str, Any]:
    """The event of a native document in ECS."""
    http, actor, trace = native["http"] or {}, native["actor"] or {}, native["trace"] or {}
    peer = http.get("peer")
    subject, tenant = actor.get("sub") or actor.get("ctx"), actor.get("tenant")
    address = peer if peer is not None and is_address(peer) else None
    fields = {
        "@timestamp": native["time"],
        "ecs": {"version": VERSION},
        "message": EVENTS[native["event"]].meaning,
        "event": _event(native),
        "service": {**_SERVICE, "node": {"name": native["node"]}},
        "source": _without_none({"address": peer, "ip": address}),
        "user": _without_none({"id": subject}),
        "organization": _without_none({"id": tenant}),
        "user_agent": _without_none({"original": http.get("user_agent")}),
        "http": _http(http),
        "url": _without_none({"path": http.get("path")}),
        "trace": _without_none({"id": trace.get("trace_id")}),
        "span": _without_none({"id": trace.get("span_id")}),
        "related": _without_none({"ip": _one(address), "user": _one(subject)}),
        "taskgate": native,
    }
    return {name: value for name, value in fields.items() if value}


def _event(native: Mapping[str, Any]) -> dict[str, Any]:
    name, topic = native["event"], EVENTS[native["event"]].topic
    category, seconds = _CATEGORIES[topic], native["data"].get("seconds")
    refused = native["outcome"] == DENIED and category in ("api", "intrusion_detection")
    fields = {
        "kind": "alert" if topic == "security" else "event",
        "category": [category],
        "type": ["denied" if refused else _TYPES.get(name, "info")],
        "action": name,
        "outcome": "success" if native["outcome"] == SUCCESS else "failure",
        "reason": native["reason"],
        "severity": _SEVERITIES[native["severity"]],
        "duration": None if seconds is None else round(seconds * 1e9),
        "provider": "taskgate",
        "module": "taskgate",
        "dataset": "taskgate.audit",
    }
    return _without_none(fields)


def _http(http: Mapping[str, Any]) -> dict[str, Any]:
    request = _without_none({"id": http.get("request_id"), "method": http.get("verb")})
    response = _without_none({"status_code": http.get("status")})
    return {name: value for name, value in (("request", request), ("response", response)) if value}


def _one(value: str | None) -> list[str] | None:
    return None if value is None else [value]


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
