"""The OCSF format of audit lines: `document` translates a native document. Pure.

OCSF is the Open Cybersecurity Schema Framework, here 1.8.

Classes:

- API Activity (6003) for requests, calls, tasks, limits, access rules and administration
- Authentication (3002) for tokens of callers, and credentials for servers
- Detection Finding (2004) for security alerts
- Application Lifecycle (6002) for the gateway, its configuration and keys, and upstreams
- Event Log Activity (1008) for the log itself

The *topic* of an audit event, the part of its name before the dot, decides the class. Within a class,
the event decides the activity. The whole native document is under `unmapped`.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final

from taskgate import __version__
from taskgate.telemetry.auditlog.catalogue import EVENTS, HIGH, INFO, LOW, MEDIUM, SUCCESS

VERSION: Final = "1.8.0"
"""The version of the schema."""
OTHER: Final = 99
"""An activity that OCSF does not define: its name is that of the audit event."""

API, AUTHENTICATION, FINDING, LIFECYCLE, EVENT_LOG = 6003, 3002, 2004, 6002, 1008

_CLASSES: Final = {
    "rpc": API,
    "call": API,
    "task": API,
    "limit": API,
    "access": API,
    "admin": API,
    "auth": AUTHENTICATION,
    "credential": AUTHENTICATION,
    "security": FINDING,
    "gateway": LIFECYCLE,
    "config": LIFECYCLE,
    "upstream": LIFECYCLE,
    "audit": EVENT_LOG,
}
"""The OCSF class of each topic."""
_JWKS_EVENTS: Final = ("auth.jwks_refreshed", "auth.jwks_failed")
"""Events about the keys of an issuer. They have the topic `auth`, but authenticate no caller. Their
class is Application Lifecycle."""
_CREATE, _READ, _UPDATE, _DELETE = 1, 2, 3, 4
_ACTIVITIES: Final = {
    # API Activity: create, read, update or delete.
    "task.created": _CREATE,
    "task.dispatched": _UPDATE,
    "task.transition": _UPDATE,
    "task.input_requested": _UPDATE,
    "task.input_answered": _UPDATE,
    "task.input_dropped": _UPDATE,
    "task.completed": _UPDATE,
    "task.failed": _UPDATE,
    "task.cancelled": _UPDATE,
    "task.expired": _UPDATE,
    "task.recovered": _UPDATE,
    "task.result_retrieved": _READ,
    "task.purged": _DELETE,
    # Authentication: 1 is a log on.
    "auth.accepted": 1,
    "auth.rejected": 1,
    # Application Lifecycle: 8 is an update.
    "auth.jwks_refreshed": 8,
    "auth.jwks_failed": 8,
    # Authentication: 4 is a request for a service ticket.
    "credential.exchanged": 4,
    "credential.failed": 4,
    # Application Lifecycle: 3 is start, 4 is stop, 8 is update.
    "gateway.started": 3,
    "gateway.stopped": 4,
    "config.loaded": 8,
    "config.rejected": 8,
    # Event Log Activity: 6 is start.
    "audit.chain_started": 6,
}
"""The activity of each event, a number that is defined by its class. Others have OTHER."""
_READ_SUFFIXES: Final = ("/list", "/get", "/read", "/result")
"""Suffixes of the methods that only read."""
_SEVERITIES: Final = {INFO: 1, LOW: 2, MEDIUM: 3, HIGH: 4}
_PRODUCT: Final = {"name": "taskgate", "vendor_name": "taskgate", "version": __version__}


def document(native: dict[str, Any]) -> dict[str, Any]:
    """The OCSF document of a native document, which it contains."""
    name = native["event"]
    class_uid = LIFECYCLE if name in _JWKS_EVENTS else _CLASSES[EVENTS[name].topic]
    activity = _activity(native, class_uid)
    made = {
        "activity_id": activity,
        "category_uid": class_uid // 1000,
        "class_uid": class_uid,
        "type_uid": class_uid * 100 + activity,
        "time": _milliseconds(native["time"]),
        "severity_id": _SEVERITIES[native["severity"]],
        "message": EVENTS[name].meaning,
        **_count(native),
        "metadata": _metadata(native),
        **_result(native),
        # After the result: a finding replaces its status.
        **_CLASS_FIELDS[class_uid](native),
        "unmapped": native,
    }
    if activity == OTHER:
        made["activity_name"] = name
    return made


def _count(native: Mapping[str, Any]) -> dict[str, int]:
    return {"count": native["data"]["count"]} if "count" in native["data"] else {}


def _activity(native: Mapping[str, Any], class_uid: int) -> int:
    if class_uid == FINDING:
        return _CREATE
    method = (native["mcp"] or {}).get("method")
    if (
        class_uid == API
        and native["event"].startswith("rpc.")
        and method is not None
        and method.endswith(_READ_SUFFIXES)
    ):
        return _READ
    return _ACTIVITIES.get(native["event"], OTHER)


def _metadata(native: Mapping[str, Any]) -> dict[str, Any]:
    http, actor = native["http"] or {}, native["actor"] or {}
    fields = {
        "version": VERSION,
        "product": _PRODUCT,
        "log_name": "audit",
        "log_provider": native["node"],
        "event_code": native["event"],
        "original_time": native["time"],
        "correlation_uid": http.get("request_id"),
        "tenant_uid": actor.get("tenant"),
    }
    return _without_none(fields)


def _result(native: Mapping[str, Any]) -> dict[str, Any]:
    good = native["outcome"] == SUCCESS
    fields = {"status_id": 1, "status": "Success"} if good else {"status_id": 2, "status": "Failure"}
    return fields if native["reason"] is None else {**fields, "status_detail": native["reason"]}


# --- the fields of each class --------------------------------------------------------------------------------------


def _api(native: Mapping[str, Any]) -> dict[str, Any]:
    message, http, trace = native["mcp"] or {}, native["http"] or {}, native["trace"]
    upstream, request_id = message.get("upstream"), message.get("request_id")
    seconds = native["data"].get("seconds")
    fields = {
        "api": _without_none(
            {
                "operation": message.get("method") or native["event"],
                "version": message.get("protocol"),
                "request": None if request_id is None else {"uid": request_id},
                "service": None if upstream is None else {"name": upstream},
            }
        ),
        "actor": _actor(native),
        "src_endpoint": _source(native),
        "dst_endpoint": None if upstream is None else {"svc_name": upstream},
        "duration": None if seconds is None else round(seconds * 1000),
        "http_request": _http_request(http),
        "http_response": None if http.get("status") is None else {"code": http["status"]},
        "resources": _resources(native, message) or None,
        "trace": None if trace is None else {"uid": trace["trace_id"]},
    }
    return _without_none(fields)


def _authentication(native: Mapping[str, Any]) -> dict[str, Any]:
    upstream = (native["mcp"] or {}).get("upstream")
    fields = {
        "auth_protocol_id": 6,
        "auth_protocol": "OAUTH 2.0",
        "is_remote": True,
        "actor": _actor(native),
        "user": _user(native["actor"]) or {"name": "unknown"},
        "service": {"name": "taskgate" if upstream is None else upstream},
        "src_endpoint": _source(native),
        "http_request": _http_request(native["http"] or {}),
    }
    return _without_none(fields)


def _finding(native: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an alert. In OCSF, the status of a finding is that of its handling: new."""
    name, request_id = native["event"], (native["http"] or {}).get("request_id")
    info = {
        "uid": name if request_id is None else f"{name}:{request_id}",
        "title": EVENTS[name].meaning,
        "types": [name],
    }
    evidence = {"actor": _actor(native), "src_endpoint": _source(native)}
    return {"finding_info": info, "evidences": [evidence], "is_alert": True, "status_id": 1, "status": "New"}


def _lifecycle(native: Mapping[str, Any]) -> dict[str, Any]:
    upstream = (native["mcp"] or {}).get("upstream")
    return {"app": _PRODUCT if upstream is None else {"name": upstream, "vendor_name": "unknown"}}


def _event_log(_: Mapping[str, Any]) -> dict[str, Any]:
    return {"log_name": "audit", "log_provider": "taskgate"}


_CLASS_FIELDS: Final[Mapping[int, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    API: _api,
    AUTHENTICATION: _authentication,
    FINDING: _finding,
    LIFECYCLE: _lifecycle,
    EVENT_LOG: _event_log,
}


# --- objects -------------------------------------------------------------------------------------------------------


def _actor(native: Mapping[str, Any]) -> dict[str, Any]:
    """The caller; the gateway itself for its own actions."""
    actor = native["actor"]
    if actor is None:
        return {"app_name": "taskgate"}
    issuer = actor["iss"]
    idp = None if issuer is None else {"name": issuer, "issuer": issuer}
    return _without_none({"user": _user(actor), "app_uid": actor["client_id"], "idp": idp})


def _user(actor: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if actor is None:
        return None
    tenant = actor["tenant"]
    fields = {
        "uid": actor["ctx"],
        "name": actor["sub"],
        "credential_uid": actor["jti"],
        "org": None if tenant is None else {"uid": tenant},
    }
    return _without_none(fields)


def _source(native: Mapping[str, Any]) -> dict[str, Any]:
    """The source of the event: the peer, else this gateway; unknown if many peers are counted."""
    peer = (native["http"] or {}).get("peer")
    if peer is None and "count" in native["data"]:
        return {"name": "unknown"}
    if peer is None:
        return {"svc_name": "taskgate", "name": native["node"]}
    return {"ip": peer} if is_address(peer) else {"name": peer}


@lru_cache(maxsize=1024)
def is_address(peer: str) -> bool:
    """Whether the peer of a request is an IP address."""
    try:
        return "%" not in peer and bool(ip_address(peer))
    except ValueError:
        return False


def _http_request(http: Mapping[str, Any]) -> dict[str, Any] | None:
    path = http.get("path")
    fields = {
        "uid": http.get("request_id"),
        "http_method": http.get("verb"),
        "user_agent": http.get("user_agent"),
        "url": None if path is None else {"path": path},
    }
    return _without_none(fields) or None


def _resources(native: Mapping[str, Any], message: Mapping[str, Any]) -> list[dict[str, Any]]:
    task, tool = native["task"], message.get("tool")
    fields: list[dict[str, Any]] = [] if tool is None else [{"type": "tool", "name": tool}]
    if task is not None:
        owner = task["owner_ctx"]
        fields.append(
            _without_none({"type": "task", "uid": task["ref"], "owner": None if owner is None else {"uid": owner}})
        )
    return fields


def _milliseconds(time: str) -> int:
    moment = datetime.fromisoformat(time)
    return int(moment.timestamp()) * 1000 + moment.microsecond // 1000


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
