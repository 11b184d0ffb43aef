"""The shapes of a task in 2025-11-25: what each state looks like, and where the related-task key stands."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from helpers.schema import RELATED_TASK, check_definition
from taskgate.domain.listing import listed_task
from taskgate.domain.record import TaskRecord, TaskStatus
from taskgate.domain.versions import Revision
from taskgate.jsontext.large import LargeJson, to_string
from taskgate.protocol.legacy.tasks import (
    list_result,
    plain_result,
    related_result,
    task_object,
    with_related_task,
)

ID = "7Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c"


# --- the outcome ---------------------------------------------------------------------------------------------------

KEY = f'"{RELATED_TASK}"'
OURS = f'{KEY}:{{"taskId":"{ID}"}}'
ODD = r'"content" :[ ],"x":{"a":1e999,"a":123456789012345678901234567890,"_meta":{}},"é":"\u00e9\ud800\/"'
RELATED: dict[str, tuple[str, str]] = {
    "an empty result": ("{}", f'{{"_meta":{{{OURS}}}}}'),
    "a spaced empty result": ("{ }", f'{{"_meta":{{{OURS}}} }}'),
    "no meta": (f"{{ {ODD} }}", f'{{"_meta":{{{OURS}}}, {ODD} }}'),
    "an empty meta": (f'{{{ODD}, "_meta" : {{}} }}', f'{{{ODD}, "_meta" : {{{OURS}}} }}'),
    "a meta of the server": (f'{{"_meta":{{ "x":1}},{ODD}}}', f'{{"_meta":{{{OURS}, "x":1}},{ODD}}}'),
    "a relation of the server": (
        f'{{{ODD},"_meta":{{"a":1, {KEY} : {{"taskId":"theirs","taskId":2}} ,"b":2}}}}',
        f'{{{ODD},"_meta":{{"a":1, {KEY} : {{"taskId":"{ID}"}} ,"b":2}}}}',
    ),
    "a relation that is no object": (f'{{"_meta":{{{KEY}:null}}}}', f'{{"_meta":{{{OURS}}}}}'),
    "a meta that is null": (f'{{"_meta": null ,{ODD}}}', f'{{"_meta": {{{OURS}}} ,{ODD}}}'),
    "a meta that is a list": ('{"_meta":[{}]}', f'{{"_meta":{{{OURS}}}}}'),
    "a meta by another spelling": (r'{"_m\u0065ta":{}}', f'{{"_m\\u0065ta":{{{OURS}}}}}'),
}


@pytest.mark.parametrize(("result", "related"), RELATED.values(), ids=RELATED)
def test_an_outcome_relates_to_its_task_and_keeps_every_other_byte(result: str, related: str) -> None:
    # L-RES-3, T23.
    assert with_related_task(result, ID) == related
    assert with_related_task(related, ID) == related
    check_definition(json.loads(related), "GetTaskPayloadResult")
    whole = f'{{"jsonrpc":"2.0","id":"i","result":{related}}}'
    assert to_string(related_result("i", result, ID)) == whole
    assert to_string(related_result("i", LargeJson(result.encode()), ID)) == whole
    for text in (result, f" {result}"):
        response = to_string(related_result("i", text, ID))
        assert json.loads(response) == {"jsonrpc": "2.0", "id": "i", "result": json.loads(related)}
        assert related in response


def test_a_large_outcome_of_the_other_era_is_made_to_fit_as_a_small_one() -> None:
    theirs = '"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"},"x":1}'
    for result in (
        f'{{"resultType":"complete","content":["é"],"structuredContent":{{"a":1}},{theirs}}}',
        f'{{"resultType":"complete",{theirs}}}',
        f'{{"content":[],"structuredContent":["é"],{theirs}}}',
    ):
        small, large = related_result(1, result, ID), related_result(1, LargeJson(result.encode()), ID)
        assert to_string(small) == to_string(large)
        assert "serverInfo" not in to_string(large)


# --- hosts that know no tasks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [Revision.R2024_11_05, Revision.R2025_06_18, Revision.R2025_11_25])
@pytest.mark.parametrize("large", [False, True])
def test_a_result_of_a_call_is_for_a_host_without_tasks_as_its_server_sent_it(host: Revision, large: bool) -> None:
    result = '{ "content" : [], "_meta": {"a": 1} }'
    given = LargeJson(result.encode()) if large else result
    assert to_string(plain_result(1, given, host)) == f'{{"jsonrpc":"2.0","id":1,"result":{result}}}'


@pytest.mark.parametrize("large", [False, True])
def test_a_result_of_a_modern_server_is_converted_for_a_host_without_tasks(large: bool) -> None:
    result = '{"resultType":"complete","content":[]}'
    given = LargeJson(result.encode()) if large else result
    told = json.loads(to_string(plain_result(1, given, Revision.R2025_06_18)))
    assert told["result"] == {"content": []}


RecordMaker = Callable[..., TaskRecord]


@pytest.mark.parametrize("id", [ID, 'é"\\'])
@pytest.mark.parametrize("message", [None, "", 'é "quoted" \\ \n \u2028 😀'])
@pytest.mark.parametrize("status", TaskStatus)
@pytest.mark.parametrize("tool_error", [False, True])
def test_a_list_writes_a_task_as_a_look_at_it_does(
    make_record: RecordMaker, id: str, message: str | None, status: TaskStatus, tool_error: bool
) -> None:
    # L-GET-1, L-LIST-3.
    made = datetime(2026, 8, 1, 0, 30, 0, 999_999, tzinfo=timezone(timedelta(hours=2)))
    record = make_record(id=id, status_message=message, status=status, tool_error=tool_error, created_at=made)
    assert list_result([listed_task(record)], None) == f'{{"tasks":[{task_object(record)}]}}'
