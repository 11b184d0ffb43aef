"""The shapes of a task in 2026-07-28: what each state looks like, and what never stands in one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from taskgate.domain.record import Faulted, FaultReason, Succeeded, TaskRecord, TaskStatus, outcome_text
from taskgate.jsontext.large import LargeJson, to_string
from taskgate.protocol.modern.tasks import (
    get_result,
    task_notification,
)
from unit.protocol.modern.judge import INFO, INFO_KEY, RELATED, read

RecordMaker = Callable[..., TaskRecord]

DONE = Succeeded(result='{"content":[]}', tool_error=False)
TOOL_FAILED = Succeeded(
    result=f'{{"isError":true,"content":[],"_meta":{{"{RELATED}":{{"taskId":"u"}}}}}}', tool_error=True
)
BROKE = Faulted(error='{"code":-32002,"message":"no","data":[1e999]}', reason=FaultReason.JSONRPC_ERROR)


@pytest.mark.parametrize("status", [TaskStatus.COMPLETED, TaskStatus.FAILED])
def test_a_finished_record_without_its_bodies_cannot_be_shown(make_record: RecordMaker, status: TaskStatus) -> None:
    with pytest.raises(AssertionError):
        get_result(make_record(status=status), INFO)


@pytest.mark.parametrize(("names_server", "named"), [(True, {INFO_KEY: {"name": "s"}}), (False, {})])
def test_a_result_says_which_server_it_is_of_where_hosts_are_told(
    make_record: RecordMaker, names_server: bool, named: dict[str, Any]
) -> None:
    said = f'{{"content":[],"_meta":{{"{INFO_KEY}":{{"name":"s"}},"io.modelcontextprotocol/logLevel":1,"own":2}}}}'
    results = (Succeeded(result=said, tool_error=False), Succeeded(result=LargeJson(said.encode()), tool_error=False))
    for outcome in results:
        record = make_record(status=TaskStatus.COMPLETED, outcome=outcome)
        looked = read(to_string(get_result(record, INFO, names_server=names_server)))
        told = read(to_string(task_notification(record, "s", names_server=names_server)))["params"]
        assert looked["result"]["_meta"] == told["result"]["_meta"] == {**named, "own": 2}


@pytest.mark.parametrize("outcome", [DONE, TOOL_FAILED, BROKE])
def test_a_large_outcome_is_shown_as_a_small_one(make_record: RecordMaker, outcome: Succeeded | Faulted) -> None:
    status = TaskStatus.COMPLETED if isinstance(outcome, Succeeded) else TaskStatus.FAILED
    text = LargeJson(str(outcome_text(outcome)).encode())
    name = "result" if isinstance(outcome, Succeeded) else "error"
    small = make_record(status=status, outcome=outcome)
    large = make_record(status=status, outcome=replace(outcome, **{name: text}))  # type: ignore[arg-type]
    assert to_string(get_result(large, INFO)) == get_result(small, INFO)
    assert to_string(task_notification(large, "s")) == task_notification(small, "s")
