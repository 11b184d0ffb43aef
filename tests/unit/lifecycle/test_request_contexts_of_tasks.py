"""Whose the making of a task is, and its call: of the request that began them, though it is long over."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.failing_store import HoldingStore
from helpers.records import after, new_record
from helpers.waiting import bounded, eventually
from taskgate.auth.context import AuthContext
from taskgate.domain.events import Dispatched
from taskgate.domain.record import TaskRecord
from taskgate.gateway.listeners import InflightCall
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Message
from taskgate.stores.open import open_store
from taskgate.telemetry.events import Event, TaskCreated
from taskgate.telemetry.request_context import RequestContext, current, in_request
from unit.admission.coalescing_desk import call
from unit.admission.live_rules import rules
from unit.gateway.modern.test_inflight_calls import Errand
from unit.lifecycle import one_runner
from unit.lifecycle import test_task_service as making

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def visiting(mount: str = "reports", trace: str | None = None) -> RequestContext:
    """A request that is being answered."""
    request_context = RequestContext("v", "address", "POST", "/mcp")
    request_context.mount, request_context.caller = mount, AuthContext(key="me")
    request_context.message = message()
    span: Any = None if trace is None else SimpleNamespace(traceparent=trace)
    request_context.span = span
    return request_context


def message() -> Message:
    found = parse(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"build_report"}}', max_depth=9)
    assert not isinstance(found, list)
    return found


class Overheard:
    """An audit that remembers in whose visit it was told of what."""

    def __init__(self) -> None:
        self.all: list[tuple[type[Event], RequestContext | None]] = []

    def emit(self, event: Event) -> None:
        self.all.append((type(event), current()))

    def of(self, kind: type[Any]) -> list[RequestContext | None]:
        return [request_context for told, request_context in self.all if told is kind]


# --- making one ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def service() -> AsyncIterator[making.House]:
    service = making.House(HoldingStore(await open_store("memory", None)))
    yield service
    await service.joining.close()


async def test_a_request_names_the_task_that_it_made_and_the_task_its_trace(service: making.House) -> None:
    request_context = visiting(trace=TRACE)
    with in_request(request_context):
        record = await service.create()
    assert (request_context.task, record.trace) == (record.id, TRACE)
    kept = await service.store.load(record.owner, record.id, now=service.clock.now())
    assert kept.trace == TRACE


async def test_a_call_that_left_and_becomes_a_task_is_named_too(service: making.House) -> None:
    request_context, underway = visiting(trace=TRACE), making.Underway()
    with in_request(request_context):
        record = await service.tasks.promote(making.CALLER, service.place, call(), underway)  # type: ignore[arg-type]
    assert (request_context.task, record.trace) == (record.id, TRACE)


@pytest.mark.parametrize("request_context", [None, visiting()], ids=["no visit", "no span"])
async def test_without_a_trace_there_is_none_to_keep(
    service: making.House, request_context: RequestContext | None
) -> None:
    with in_request(request_context):
        assert (await service.create()).trace is None


async def test_who_is_given_an_earlier_task_made_none(service: making.House) -> None:
    first, second = visiting(), visiting()
    with in_request(first):
        record = await service.create(call(key="k"))
    with in_request(second):
        assert (await service.create(call(key="k"))).id == record.id
    assert (first.task, second.task) == (record.id, None)


async def test_a_task_that_equal_calls_share_is_made_by_the_first_of_them() -> None:
    """Though the second waits for it as well, and the first may leave meanwhile."""
    told = Overheard()
    service = making.House(HoldingStore(await open_store("memory", None)), emitted=told)
    service.live.current = rules(policy=service.policy(join_retries=making.timedelta(seconds=30)))
    first, second = visiting(trace=TRACE), visiting()

    async def create(request_context: RequestContext) -> TaskRecord:
        with in_request(request_context):
            return await service.create()

    with service.store.holding("insert") as inserting:
        creating = [asyncio.create_task(create(first))]
        async with bounded():
            await inserting.wait()
        creating.append(asyncio.create_task(create(second)))
        await asyncio.sleep(0)
    async with bounded():
        one, other = await asyncio.gather(*creating)
    assert one.id == other.id
    assert told.of(TaskCreated) == [first]
    assert (first.task, second.task, one.trace) == (one.id, None, TRACE)
    await service.joining.close()


# --- running one -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def house() -> AsyncIterator[one_runner.House]:
    house = one_runner.House(await open_store("memory", None))
    house.runner.open()
    yield house
    await house.runner.stop()


def met(house: one_runner.House) -> list[RequestContext | None]:
    """The visits in which the server is called from now on."""
    request_contexts: list[RequestContext | None] = []
    call = house.server.call

    async def watched(*args: Any, **kwargs: Any) -> Any:
        request_contexts.append(current())
        return await call(*args, **kwargs)

    house.server.call = watched  # type: ignore[method-assign]
    return request_contexts


async def test_the_call_of_a_task_runs_behind_the_request_that_made_it(house: one_runner.House) -> None:
    request_contexts, request_context = met(house), visiting(trace=TRACE)
    with in_request(request_context):
        record = await house.start()
    house.server.answer.set_result("{}")
    await house.ended(record)
    (behind,) = request_contexts
    assert behind is not None
    assert (behind.id, behind.caller, behind.span, behind.mount) == (
        "v",
        request_context.caller,
        request_context.span,
        "reports",
    )
    assert (behind.background, behind.task, behind.message) == (True, record.id, None)
    assert request_context.background is False


class Large:
    """What stands for a message of megabytes."""


async def test_the_call_of_a_task_does_not_keep_the_message_of_its_request(house: one_runner.House) -> None:
    """Which may have megabytes, while the call may last for hours."""
    request_context, large = visiting(), Large()
    request_context.message, gone = large, weakref.ref(large)  # type: ignore[assignment]
    with in_request(request_context):
        record = await house.start()
    await eventually(lambda: house.server.called)
    del request_context, large
    gc.collect()
    assert gone() is None
    house.server.answer.set_result("{}")
    await house.ended(record)


async def test_the_call_of_an_earlier_process_runs_in_a_visit_of_its_own(house: one_runner.House) -> None:
    request_contexts = met(house)
    record = await house.recover(new_record(trace=TRACE))
    house.server.answer.set_result("{}")
    await house.ended(record)
    (request_context,) = request_contexts
    assert request_context is not None
    assert (request_context.id, request_context.address, request_context.caller, request_context.message) == (
        "",
        "",
        None,
        None,
    )
    assert (request_context.mount, request_context.task, request_context.background) == ("reports", record.id, True)
    assert request_context.span is not None
    assert request_context.span.traceparent == TRACE


async def test_what_was_not_traced_has_no_span_to_point_at_later(house: one_runner.House) -> None:
    request_contexts = met(house)
    record = await house.recover(after(new_record(reruns=1), Dispatched()))
    house.server.answer.set_result("{}")
    await house.ended(record)
    assert [request_context and request_context.span for request_context in request_contexts] == [None]


# --- calls that may become one ---------------------------------------------------------------------------------------


async def test_a_call_that_may_outlive_its_request_goes_on_in_what_is_left_of_it() -> None:
    errand, request_context = Errand(), visiting(trace=TRACE)
    request_contexts: list[RequestContext | None] = []

    async def work(listener: Any) -> Any:
        request_contexts.append(current())
        return await errand(listener)

    with in_request(request_context):
        flight = InflightCall(most=2)
        flight.start(errand.spot, errand.flying, work)  # type: ignore[arg-type]
    await eventually(lambda: request_contexts)
    (rest,) = request_contexts
    assert rest is not None
    assert (rest.id, rest.span, rest.caller, rest.message) == ("v", request_context.span, request_context.caller, None)
    assert rest.background is False
    flight.attach_listener(SimpleNamespace(on_notification=None, asked=None))  # type: ignore[arg-type]
    assert (rest.background, request_context.background) == (True, False)
    errand.answer.set_result("r")
    async with bounded():
        await flight.wait_for_change(None)


async def test_a_call_of_no_request_goes_on_in_none() -> None:
    errand = Errand()
    flight = errand.begin()
    flight.attach_listener(SimpleNamespace(on_notification=None, asked=None))  # type: ignore[arg-type]
    errand.answer.set_result("r")
    async with bounded():
        await flight.wait_for_change(None)


async def test_a_call_that_may_outlive_its_request_does_not_keep_its_message() -> None:
    errand, request_context, large = Errand(), visiting(), Large()
    request_context.message, gone = large, weakref.ref(large)  # type: ignore[assignment]
    with in_request(request_context):
        flight = errand.begin()
    await asyncio.sleep(0)
    del request_context, large
    gc.collect()
    assert gone() is None
    errand.answer.set_result("r")
    async with bounded():
        await flight.wait_for_change(None)
