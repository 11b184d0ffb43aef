"""Records as tests want them: whole and plain, each with an id of its own, and as changed as the test says."""

from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any, Final

from helpers.manual_clock import EPOCH
from taskgate.domain.machine import advance
from taskgate.domain.record import Faulted, InputRequest, Lease, OwnerKey, Succeeded, TaskRecord, TaskStatus, ToolCall
from taskgate.domain.versions import Peer, Revision
from taskgate.jsontext.large import LargeJson
from taskgate.stores.base import SessionRecord, TaskStore

OWNER: Final = OwnerKey("anonymous", "reports")
"""Whom records belong to unless a test says otherwise."""

HOLDER: Final = "process-1"

_numbers = count(1)


def new_peer(**changes: Any) -> Peer:
    """A host of the newest revision that says a little of everything."""
    peer = Peer(
        revision=Revision.R2025_11_25,
        capabilities={"elicitation": {"form": {}}, "sampling": {}},
        info={"name": "host", "version": "1.0"},
    )
    return peer._replace(**changes)


def new_call(**changes: Any) -> ToolCall:
    """A call with its parameters."""
    call = ToolCall(
        tool="build_report",
        peer=new_peer(),
        host_session=None,
        progress_token=None,
        params='{"name":"build_report","arguments":{"year":2026}}',
    )
    return call._replace(**changes)


def new_record(**changes: Any) -> TaskRecord:
    """A working task that was made at EPOCH and lives for an hour; its id is new in this process.

    `params` goes to the call; `updated_at` and the expiry follow `created_at` unless they are given too.
    """
    if "params" in changes:
        changes["call"] = changes.get("call", new_call())._replace(params=changes.pop("params"))
    created_at = changes.setdefault("created_at", EPOCH)
    changes.setdefault("updated_at", created_at)
    usual: dict[str, Any] = {
        "id": f"task-{next(_numbers):08}",
        "owner": OWNER,
        "call": new_call(),
        "status": TaskStatus.WORKING,
        "ttl": timedelta(hours=1),
        "poll_interval": timedelta(seconds=1),
    }
    return TaskRecord(**usual | changes)


def new_input(key: str = "input-1", **changes: Any) -> InputRequest:
    """A question to the host."""
    return replace(InputRequest(key=key, method="elicitation/create", params='{"message":"Go on?"}'), **changes)


def new_lease(**changes: Any) -> Lease:
    """A lease for a minute after EPOCH."""
    return Lease(holder=HOLDER, until=EPOCH + timedelta(minutes=1))._replace(**changes)


def new_session(**changes: Any) -> SessionRecord:
    """A host's session, open for an hour after EPOCH; its id is new in this process."""
    session = SessionRecord(
        id=f"session-{next(_numbers):08}", owner=OWNER, peer=new_peer(), expires_at=EPOCH + timedelta(hours=1)
    )
    return replace(session, **changes)


def after(record: TaskRecord, *events: Any, by: timedelta = timedelta(seconds=1)) -> TaskRecord:
    """The record after these events, each `by` later than the last change."""
    for event in events:
        record = advance(record, event, record.updated_at + by)
    return record


def in_text(record: TaskRecord | None) -> TaskRecord | None:
    """The record as it was stored: a store gives the bytes of a large outcome, of which this has the text."""
    match None if record is None else record.outcome:
        case Succeeded(result=LargeJson() as text) as outcome:
            return replace(record, outcome=replace(outcome, result=text.text()))
        case Faulted(error=LargeJson() as text) as outcome:
            return replace(record, outcome=replace(outcome, error=text.text()))
    return record


async def keep(store: TaskStore, *records: TaskRecord) -> None:
    """Insert records, one after another, without a cap."""
    for record in records:
        await store.insert(record, caps=())
