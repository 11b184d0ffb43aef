"""A task of a server of 2025-11-25, and what that may answer when it is asked of it."""

import json
from typing import Any

import pytest

from taskgate.domain.record import TaskStatus
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import UpstreamFailed
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import ServerTask

ID = "a3f0c1d2-theirs"
RELATED = f'"io.modelcontextprotocol/related-task": {{"taskId":"{ID}"}}'
TIMES = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:01Z"}


def answer(result: str | None = None, error: str | None = None) -> Response:
    told = f'"result" : {result}' if error is None else f'"error":{error}'
    message = parse(f'{{ "jsonrpc":"2.0",{told} ,"id": 5 }}'.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


def refusal(code: int, message: str = "No") -> Response:
    return answer(error=json.dumps({"code": code, "message": message}))


def task(**said: Any) -> dict[str, Any]:
    return {"taskId": ID, "status": "working", "ttl": 60_000, **TIMES, **said}


def seen(status: TaskStatus, message: str | None = None, id_: str = ID) -> ServerTask:
    return ServerTask(id_, status, message)


def peer(revision: Revision, **capabilities: Any) -> Peer:
    return Peer(revision=revision, capabilities=capabilities, info={})


def reason_of(failure: pytest.ExceptionInfo[UpstreamFailed]) -> tuple[str, bool]:
    return failure.value.reason, failure.value.dispatched
