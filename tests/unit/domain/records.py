"""Tasks to begin with, and everything that can happen to one."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from helpers.manual_clock import EPOCH
from taskgate.domain.events import (
    AnswerForwarded,
    CallFaulted,
    CallSucceeded,
    CancelRequested,
    CheckpointSaved,
    Dispatched,
    DispatchWithdrawn,
    InputAnswered,
    InputClaimed,
    InputDeferred,
    InputRequested,
    InputResolution,
    InputWithdrawn,
    KeyReleased,
    Progressed,
    ResultRetrieved,
    RoundDispatched,
    TakenOver,
    TaskEvent,
)
from taskgate.domain.record import (
    FaultReason,
    InputRequest,
    Lease,
    OwnerKey,
    SealedCheckpoint,
    TaskRecord,
    TaskStatus,
    ToolCall,
)
from taskgate.domain.versions import NEWEST_LEGACY, Peer

EVENTS = (
    Dispatched,
    DispatchWithdrawn,
    Progressed,
    InputRequested,
    InputClaimed,
    InputAnswered,
    InputDeferred,
    InputWithdrawn,
    AnswerForwarded,
    CheckpointSaved,
    RoundDispatched,
    CallSucceeded,
    CallFaulted,
    CancelRequested,
    TakenOver,
    KeyReleased,
    ResultRetrieved,
)


def question(number: int = 1, **changes: Any) -> InputRequest:
    return InputRequest(**{"key": f"input-{number}", "method": "elicitation/create", "params": "{}", **changes})


def record(**changes: Any) -> TaskRecord:
    """A new task, working and leased; `changes` as of a TaskRecord."""
    peer = Peer(revision=NEWEST_LEGACY, capabilities={}, info={})
    call = ToolCall(tool="build", peer=peer, host_session="s", progress_token=1, params='{"name":"build"}')
    values: dict[str, Any] = {
        "id": "t" * 32,
        "owner": OwnerKey("anonymous", "reports"),
        "call": call,
        "status": TaskStatus.WORKING,
        "created_at": EPOCH,
        "updated_at": EPOCH,
        "ttl": timedelta(hours=1),
        "poll_interval": timedelta(seconds=5),
        "lease": Lease(holder="p", until=EPOCH + timedelta(seconds=30)),
    }
    return TaskRecord(**{**values, **changes})


_keys = st.integers(1, 5).map(lambda number: f"input-{number}")
events: st.SearchStrategy[TaskEvent] = st.one_of(
    st.just(Dispatched()),
    st.just(DispatchWithdrawn()),
    st.builds(Progressed, message=st.text(max_size=5)),
    st.builds(InputRequested, request=st.integers(1, 5).map(question)),
    st.builds(InputClaimed, key=_keys, stream=st.sampled_from(["a", "b", None])),
    st.builds(InputAnswered, key=_keys, response=st.sampled_from(['{"x":1}', "{}"])),
    st.builds(InputDeferred, key=_keys, response=st.just("{}"), deferred_to=st.just("theirs")),
    st.builds(InputWithdrawn, key=_keys, resolution=st.sampled_from(InputResolution)),
    st.builds(AnswerForwarded, key=_keys),
    st.just(CheckpointSaved(checkpoint=SealedCheckpoint(sealed="s"))),
    st.just(RoundDispatched()),
    st.builds(CallSucceeded, result=st.just("{}"), tool_error=st.booleans(), message=st.none() | st.just("no")),
    st.builds(
        CallFaulted,
        error=st.just('{"code":1}'),
        reason=st.sampled_from(FaultReason),
        message=st.just("no"),
        unsent=st.booleans(),
    ),
    st.just(CancelRequested()),
    st.just(TakenOver()),
    st.just(ResultRetrieved()),
    st.just(KeyReleased()),
)
"""Any event, possible in the state it meets or not."""
