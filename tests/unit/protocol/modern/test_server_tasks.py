"""Tasks that servers of the modern era make: what they are asked, and what they show."""

import json
from typing import Any

import pytest

from taskgate.errors import UpstreamFailed
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Response
from taskgate.protocol.modern import upstream
from taskgate.protocol.server_messages import ServerTask

TIMES = {"createdAt": "2026-08-01T09:00:00.000Z", "lastUpdatedAt": "2026-08-01T09:00:07.120Z", "ttlMs": None}
TASK = {"taskId": "native-1", "status": "working", **TIMES}
CREATED = {"resultType": "task", **TASK}


def response(result: Any = None, *, text: str | None = None) -> Response:
    told = json.dumps(result) if text is None else text
    found = parse(f'{{"jsonrpc":"2.0","id":7,"result":{told}}}'.encode(), max_depth=64)
    assert isinstance(found, Response)
    return found


def created(result: Any, method: str = "tools/call") -> ServerTask | None:
    return upstream.read_created(method, response(result))


# --- that it made one


@pytest.mark.parametrize(
    "changes",
    [
        {"taskId": ""},
        {"taskId": 3},
        {"taskId": None},
        {"taskId": "x" * 4097},
        {"taskId": "\ud800"},
    ],
)
def test_a_task_that_cannot_be_followed_breaks_the_protocol(changes: dict[str, Any]) -> None:
    with pytest.raises(UpstreamFailed, match="its task") as failed:
        created({**CREATED, **changes})
    assert (failed.value.reason, failed.value.dispatched) == ("malformed", True)
