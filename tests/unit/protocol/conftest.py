"""Records to be rendered."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import EPOCH
from taskgate.domain.record import OwnerKey, TaskRecord, TaskStatus, ToolCall
from taskgate.domain.versions import NEWEST_LEGACY, Peer

RecordMaker = Callable[..., TaskRecord]

CALL = ToolCall(
    tool="render",
    peer=Peer(revision=NEWEST_LEGACY, capabilities={}, info={}),
    host_session="s",
    progress_token=None,
    params='{"name":"render"}',
)


@pytest.fixture
def make_record() -> RecordMaker:
    """A working record made at EPOCH and changed 7.12 s later, with what the test wants otherwise."""

    def make(**changes: Any) -> TaskRecord:
        fields: dict[str, Any] = {
            "id": "7Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c",
            "owner": OwnerKey("anonymous", "reports"),
            "call": CALL,
            "status": TaskStatus.WORKING,
            "created_at": EPOCH,
            "updated_at": EPOCH + timedelta(seconds=7, milliseconds=120),
            "ttl": timedelta(hours=1),
            "poll_interval": timedelta(seconds=2),
        }
        return TaskRecord(**{**fields, **changes})

    return make
