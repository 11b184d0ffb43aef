"""The payload of a task is what the store has, byte for byte, and names the parts that are not there."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from helpers.manual_clock import ManualClock
from helpers.records import after, keep, new_input, new_record
from taskgate.clock import SystemEntropy
from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.record import FaultReason, SealedCheckpoint, TaskRecord, TaskStatus
from taskgate.operators.access import ApiError, Operator, OperatorAccess, Role
from taskgate.operators.cursors import ListCursors
from taskgate.operators.routes import ApiCall, EventStream, NoQuery
from taskgate.operators.tasks import MOST_PAYLOADS, TaskRoutes
from taskgate.stores.base import Store
from taskgate.stores.open import open_store
from taskgate.stores.references import plain_reference
from taskgate.telemetry.events import AuditCapacity, UnlimitedAuditCapacity

ODD = '{ "big" : 123456789012345678901234567890, "real": 1.00e+040,"text":"\\u00e9 \\/ é", "list": [ ] }'
"""JSON that a parser would not write again as it is."""
DONE = CallSucceeded(result=ODD, tool_error=False)
OPERATOR = Operator("ops", Role.OPERATOR)


class FullLog:
    """An audit log that refuses requests until there is room."""

    is_full = True

    async def room(self) -> bool:
        """Tell that there is none."""
        return False


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """A store in memory."""
    store = await open_store("memory", None, plain_reference)
    yield store
    await store.close()


@pytest.fixture
def look(store: Store) -> Callable[..., Any]:
    """The handler of the route, for the record of a task."""
    access = OperatorAccess(lambda: 0.0)
    access.shows_payloads = True
    handlers: dict[AuditCapacity | None, Any] = {}

    def handler(capacity: AuditCapacity | None) -> Any:
        routes = TaskRoutes(
            store=store,
            transitions=cast("Any", None),
            runner=cast("Any", None),
            reference_of=plain_reference,
            cursors=ListCursors(lambda: (b"k" * 32, None), SystemEntropy()),
            clock=ManualClock(),
            access=access,
            audit_capacity=capacity or UnlimitedAuditCapacity(),
        )
        return next(route.handler for route in routes.routes() if route.path.endswith("/payload"))

    async def look(record: TaskRecord, capacity: AuditCapacity | None = None) -> EventStream:
        handlers.setdefault(capacity, handler(capacity))
        call = ApiCall(
            operator=OPERATOR, parameters={"reference": plain_reference(record.id)}, query=NoQuery(), body=None
        )
        stream: EventStream = await handlers[capacity](call)
        return stream

    return look


async def text_of(stream: EventStream) -> bytes:
    return b"".join([part async for part in stream])


async def ended(store: Store, event: Any, **changes: Any) -> TaskRecord:
    """A stored task that has ended."""
    record = new_record(**changes)
    await keep(store, record)
    done = after(record, event)
    assert await store.swap(done, expected=record.revision)
    return done


@pytest.mark.parametrize("size", [0, 300_000])
async def test_arguments_and_result_are_the_bytes_that_the_store_has(
    store: Store, look: Callable[..., Any], size: int
) -> None:
    written = ODD.replace("[ ]", f'"{"é" * size}"')
    record = await ended(
        store,
        CallSucceeded(result=written, tool_error=False),
        params=f'{{"name":"build_report", "arguments" : {written} ,"_meta":{{"x":1}}}}',
    )
    text = await text_of(await look(record))
    assert text.count(b'"value":' + written.encode()) == 2
    document = json.loads(text)
    assert document["arguments"]["bytes"] == document["result"]["bytes"] == len(written.encode())
    assert document["error"] == {"state": "none", "bytes": None, "value": None}
    assert (document["status"], document["tool"]) == ("completed", "build_report")
    assert b"_meta" not in text


async def test_an_error_is_shown_in_place_of_a_result(store: Store, look: Callable[..., Any]) -> None:
    fault = CallFaulted(error='{"code":-32000,"message":"no paper"}', reason=FaultReason.JSONRPC_ERROR, message="no")
    document = json.loads(await text_of(await look(await ended(store, fault))))
    assert document["result"]["state"] == "none"
    assert document["error"]["value"] == {"code": -32000, "message": "no paper"}


async def test_questions_and_answers_are_those_that_the_store_still_has(store: Store, look: Callable[..., Any]) -> None:
    record = replace(
        new_record(params='{"name":"build_report"}', dispatched=True),
        status=TaskStatus.INPUT_REQUIRED,
        inputs=(new_input("input-3"),),
        inputs_made=3,
        answers={"input-2": '{"action":"accept"}'},
        checkpoint=SealedCheckpoint(sealed="sealed", answers={"input-1": '{"action":"decline"}'}),
    )
    await keep(store, record)
    text = await text_of(await look(record))
    document = json.loads(text)
    [question] = document["questions"]
    assert (question["key"], question["method"]) == ("input-3", "elicitation/create")
    assert question["value"] == {"message": "Go on?"}
    assert [(each["key"], each["value"]["action"]) for each in document["answers"]] == [
        ("input-1", "decline"),
        ("input-2", "accept"),
    ]
    assert document["arguments"]["state"] == "none"
    assert document["result"]["state"] == document["error"]["state"] == "pending"
    assert b"sealed" not in text


async def test_a_part_that_the_store_has_lost_is_named_as_such(store: Store, look: Callable[..., Any]) -> None:
    record = new_record(params=None, status=TaskStatus.COMPLETED)
    await keep(store, record)
    document = json.loads(await text_of(await look(record)))
    assert (document["arguments"]["state"], document["result"]["state"]) == ("not_stored", "not_stored")


async def test_a_lone_surrogate_becomes_its_escape(store: Store, look: Callable[..., Any]) -> None:
    record = await ended(store, DONE, params='{"name":"build_report","arguments":{"a":"\udcff"}}')
    assert b'{"a":"\\udcff"}' in await text_of(await look(record))


async def test_so_many_payloads_are_sent_at_once_and_one_more_is_refused(
    store: Store, look: Callable[..., Any]
) -> None:
    record = await ended(store, DONE)
    first, *rest = [await look(record) for _ in range(MOST_PAYLOADS)]
    with pytest.raises(ApiError) as refused:
        await look(record)
    assert (refused.value.status, refused.value.code) == (503, "too_many_payloads")
    # A reader that is gone gives its place back.
    await first.aclose()
    assert await text_of(await look(record))
    for stream in rest:
        await stream.aclose()


async def test_no_payload_is_shown_while_the_audit_log_refuses_requests(store: Store, look: Callable[..., Any]) -> None:
    record = await ended(store, DONE)
    with pytest.raises(ApiError) as refused:
        await look(record, FullLog())
    assert (refused.value.status, refused.value.code) == (503, "audit_full")
