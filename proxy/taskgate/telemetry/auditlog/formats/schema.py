"""The JSON Schema of native lines, made of the catalogue: `schema`.

`taskgate audit schema` prints it, and `config/audit-schema.json` publishes it. Lines in the other
formats contain a native document (`native_part`), which it describes too.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from taskgate.telemetry.auditlog.catalogue import KINDS, OUTCOMES, SEVERITIES, VERSION, EventKind

_Schema = dict[str, Any]


def schema() -> _Schema:
    """The schema, in the 2020-12 dialect."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of the audit log of taskgate",
        **_closed(_LINE, optional=_CHAIN_FIELDS),
        "allOf": [_event_schema(kind) for kind in KINDS],
        "$defs": dict(_DATA_MEMBERS),
    }


def schema_text() -> str:
    """The schema as formatted JSON text."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _closed(members: Mapping[str, _Schema], *, optional: tuple[str, ...] = ()) -> _Schema:
    """An object with these members and no other."""
    required = [name for name in members if name not in optional]
    return {"type": "object", "properties": dict(members), "required": required, "additionalProperties": False}


def _event_schema(kind: EventKind) -> _Schema:
    """The schema of the lines of one event."""
    members = {name: {"$ref": f"#/$defs/{name}"} for name in (*kind.members, _UNRENDERED)}
    fields = {
        "outcome": {"enum": list(kind.severities)},
        "data": {"type": "object", "properties": members, "additionalProperties": False},
    }
    return {
        "if": {"properties": {"event": {"const": kind.name}}},
        "then": {"description": kind.meaning, "properties": fields},
    }


def _or_null(schema: _Schema) -> _Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_TEXT: Final[_Schema] = {"type": ["string", "null"], "maxLength": 257}
_COUNT: Final[_Schema] = {"type": ["integer", "null"], "minimum": 0}
_FLAG: Final[_Schema] = {"type": "boolean"}
_SECONDS: Final[_Schema] = {"type": ["number", "null"]}
_TEXTS: Final[_Schema] = {"type": "array", "items": {"type": "string"}}
_HASH: Final[_Schema] = {"type": ["string", "null"], "pattern": "^[0-9a-f]{64}$"}


def _digest(letter: str) -> _Schema:
    return {"type": ["string", "null"], "pattern": f"^{letter}_[A-Za-z0-9_-]{{22}}$"}


_CONTEXT: Final[_Schema] = {"type": ["string", "null"], "pattern": "^c_"}

_ACTOR: Final = _closed(
    {
        "ctx": {"type": "string", "pattern": "^c_", "description": "The reference of the auth context."},
        "method": {
            "enum": ["jwt", "none", None, "api_key"],
            "description": "null where only the owner of a task is known.",
        },
        "iss": _TEXT,
        "sub": _TEXT,
        "client_id": _TEXT,
        "tenant": _TEXT,
        "jti": _TEXT,
        "delegation": {
            "type": "array",
            "description": "Who acts for the subject: the present one first.",
            "items": _closed({"iss": _TEXT, "sub": _TEXT, "client_id": _TEXT}),
        },
    }
)
_MESSAGE: Final = _closed(
    {
        "method": _TEXT,
        "protocol": _TEXT,
        "request_id": _TEXT,
        "upstream": _TEXT,
        "tool": _TEXT,
        "client": _or_null(_closed({"name": _TEXT, "version": _TEXT})),
    }
)
_TASK: Final = _closed(
    {
        "ref": {**_digest("t"), "type": "string"},
        "status": {"enum": ["working", "input_required", "completed", "failed", "cancelled", None]},
        "owner_ctx": _CONTEXT,
        "ttl_ms": _COUNT,
    }
)
_ARGUMENTS: Final = _closed(
    {
        "keys": {"type": ["array", "null"], "items": _TEXT, "maxItems": 32},
        "bytes": _COUNT,
        "hmac": _digest("a"),
        "values": {"description": "The arguments, redacted."},
        "omitted": {"enum": ["memory", "size", "unreadable"]},
    },
    optional=("values", "omitted"),
)
_REQUEST: Final = _closed(
    {
        "peer": _TEXT,
        "request_id": _TEXT,
        "verb": _TEXT,
        "path": _TEXT,
        "status": _COUNT,
        "user_agent": _TEXT,
    }
)
_LIMIT: Final = _closed({"kind": {"type": "string"}, "policy": _TEXT, "scope": _TEXT})
_TRACE: Final = _closed(
    {
        "trace_id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "span_id": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
    }
)

_CHAIN_FIELDS: Final = ("seq", "prev")
_LINE: Final[Mapping[str, _Schema]] = {
    "v": {"const": VERSION},
    "seq": {"type": "integer", "minimum": 1, "description": "The number of the line in its sink."},
    "prev": {**_HASH, "description": "SHA-256 of the line before; null where there is no chain."},
    "time": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$"},
    "node": {"type": "string"},
    "event": {"enum": [kind.name for kind in KINDS]},
    "outcome": {"enum": list(OUTCOMES)},
    "reason": _TEXT,
    "severity": {"enum": list(SEVERITIES)},
    "actor": _or_null(_ACTOR),
    "mcp": _or_null(_MESSAGE),
    "task": _or_null(_TASK),
    "args": _or_null(_ARGUMENTS),
    "http": _or_null(_REQUEST),
    "limit": _or_null(_LIMIT),
    "trace": _or_null(_TRACE),
    "data": {"type": "object"},
}

_UNRENDERED: Final = "unrendered"
"""The `data` member of a line that could not be rendered in full: the reason."""
_DATA_MEMBERS: Final[Mapping[str, _Schema]] = {
    _UNRENDERED: _TEXT,
    "adjustment": _TEXT,
    "age_seconds": _SECONDS,
    "algorithm": {"enum": ["hmac-sha256", "ed25519"]},
    "bytes": _COUNT,
    "cancelled": _COUNT,
    "cause": {"type": "string"},
    "count": {"type": "integer", "minimum": 1},
    "delay_seconds": _SECONDS,
    "dry_run": _FLAG,
    "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{12}$"},
    "first": _FLAG,
    "from": {"type": "string"},
    "head": _HASH,
    "issuer": _TEXT,
    "key": _TEXT,
    "keys": _COUNT,
    "kind": _TEXT,
    "left_out": _COUNT,
    "lines": _COUNT,
    "matched": _COUNT,
    "messages": _COUNT,
    "problems": _TEXTS,
    "result": _closed({"bytes": _COUNT, "hmac": _digest("r")}, optional=("bytes", "hmac")),
    "operator": {"type": ["string", "null"]},
    "retrieved": _FLAG,
    "rule": _TEXT,
    "seconds": _SECONDS,
    "seq": _COUNT,
    "signature": {"type": "string"},
    "sink": {"type": "string"},
    "stated_reason": _TEXT,
    "to": {"type": "string"},
    "version": _TEXT,
    "waited_seconds": _SECONDS,
    "waits": _TEXTS,
}
"""The schema of each member of `data`."""
