"""A line in the words of the Open Cybersecurity Schema Framework, 1.8: made of the line in ours, which is in it whole.

Classes: API Activity (6003) for requests, tasks and limits, Authentication (3002) for tokens, Detection Finding (2004)
for suspicions, Application Lifecycle (6002) for the gateway and its servers, Event Log Activity (1008) for the log
itself. Ours stands under `unmapped`. Pure.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final

from taskgate import __version__
from taskgate.telemetry.auditlog.catalogue import EVENTS, HIGH, INFO, LOW, MEDIUM, SUCCESS

VERSION: Final = "1.8.0"
"""Of the schema."""
OTHER: Final = 99
"""An activity that the schema has no word for: it is named by our own."""

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
"""By what an event is about."""
_KEY_EVENTS: Final = ("auth.jwks_refreshed", "auth.jwks_failed")
"""Nobody is authenticated by these."""
_CREATE, _READ, _UPDATE, _DELETE = 1, 2, 3, 4
_ACTIVITIES: Final = {
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
    "auth.accepted": 1,
    "auth.rejected": 1,
    "auth.jwks_refreshed": 8,
    "auth.jwks_failed": 8,
    "credential.exchanged": 4,
    "credential.failed": 4,
    "gateway.started": 3,
    "gateway.stopped": 4,
    "config.loaded": 8,
    "config.rejected": 8,
    "audit.chain_started": 6,
}
"""Of the class that the event is of: to create, read, update or delete; to log on; to start, stop or update."""
_READ_SUFFIXES: Final = ("/list", "/get", "/read", "/result")
"""The ends of methods that change nothing."""
_SEVERITIES: Final = {INFO: 1, LOW: 2, MEDIUM: 3, HIGH: 4}
_PRODUCT: Final = {"name": "taskgate", "vendor_name": "taskgate", "version": __version__}


def document(native: dict[str, Any]) -> dict[str, Any]:
    """The same event in these words."""
    name = native["event"]
    class_uid = LIFECYCLE if name in _KEY_EVENTS else _CLASSES[EVENTS[name].topic]
    activity = _activity(native, class_uid)
    made = {
        "activity_id": activity,
        "category_uid": class_uid // 1000,
        "class_uid": class_uid,
        "type_uid": class_uid * 100 + activity,
        "time": _milliseconds(native["time"]),
        "severity_id": _SEVERITIES[native["severity"]],
        "message": EVENTS[name].meaning,
        "metadata": _metadata(native),
        **_result(native),
        **_CLASS_FIELDS[class_uid](native),
        "unmapped": native,
    }
    if activity == OTHER:
        made["activity_name"] = name
    return made


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
    told = {
        "version": VERSION,
        "product": _PRODUCT,
        "log_name": "audit",
        "log_provider": native["node"],
        "event_code": native["event"],
        "original_time": native["time"],
        "correlation_uid": http.get("request_id"),
        "tenant_uid": actor.get("tenant"),
    }
    return _known(told)


def _result(native: Mapping[str, Any]) -> dict[str, Any]:
    good = native["outcome"] == SUCCESS
    told = {"status_id": 1, "status": "Success"} if good else {"status_id": 2, "status": "Failure"}
    return told if native["reason"] is None else {**told, "status_detail": native["reason"]}


# --- what each class has besides -----------------------------------------------------------------------------------


def _api(native: Mapping[str, Any]) -> dict[str, Any]:
    message, http, trace = native["mcp"] or {}, native["http"] or {}, native["trace"]
    upstream, request_id = message.get("upstream"), message.get("request_id")
    seconds = native["data"].get("seconds")
    told = {
        "api": _known(
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
    return _known(told)


def _authentication(native: Mapping[str, Any]) -> dict[str, Any]:
    upstream = (native["mcp"] or {}).get("upstream")
    told = {
        "auth_protocol_id": 6,
        "auth_protocol": "OAUTH 2.0",
        "is_remote": True,
        "actor": _actor(native),
        "user": _user(native["actor"]) or {"name": "unknown"},
        "service": {"name": "taskgate" if upstream is None else upstream},
        "src_endpoint": _source(native),
        "http_request": _http_request(native["http"] or {}),
    }
    return _known(told)


def _finding(native: Mapping[str, Any]) -> dict[str, Any]:
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
    """Who asked; the gateway where it did something of its own accord."""
    actor = native["actor"]
    if actor is None:
        return {"app_name": "taskgate"}
    issuer = actor["iss"]
    idp = None if issuer is None else {"name": issuer, "issuer": issuer}
    return _known({"user": _user(actor), "app_uid": actor["client_id"], "idp": idp})


def _user(actor: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if actor is None:
        return None
    tenant = actor["tenant"]
    told = {
        "uid": actor["ctx"],
        "name": actor["sub"],
        "credential_uid": actor["jti"],
        "org": None if tenant is None else {"uid": tenant},
    }
    return _known(told)


def _source(native: Mapping[str, Any]) -> dict[str, Any]:
    """Where it came from: the peer, else this gateway."""
    peer = (native["http"] or {}).get("peer")
    if peer is None:
        return {"svc_name": "taskgate", "name": native["node"]}
    return {"ip": peer} if is_address(peer) else {"name": peer}


@lru_cache(maxsize=1024)
def is_address(peer: str) -> bool:
    """Whether a peer is told by its address."""
    try:
        return "%" not in peer and bool(ip_address(peer))
    except ValueError:
        return False


def _http_request(http: Mapping[str, Any]) -> dict[str, Any] | None:
    path = http.get("path")
    told = {
        "uid": http.get("request_id"),
        "http_method": http.get("verb"),
        "user_agent": http.get("user_agent"),
        "url": None if path is None else {"path": path},
    }
    return _known(told) or None


def _resources(native: Mapping[str, Any], message: Mapping[str, Any]) -> list[dict[str, Any]]:
    task, tool = native["task"], message.get("tool")
    told: list[dict[str, Any]] = [] if tool is None else [{"type": "tool", "name": tool}]
    if task is not None:
        owner = task["owner_ctx"]
        told.append(_known({"type": "task", "uid": task["ref"], "owner": None if owner is None else {"uid": owner}}))
    return told


def _milliseconds(time: str) -> int:
    moment = datetime.fromisoformat(time)
    return int(moment.timestamp()) * 1000 + moment.microsecond // 1000


def _known(told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if value is not None}
