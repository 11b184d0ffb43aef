"""What hosts of the modern era ask of tasks: their own alone, and of either era."""

from datetime import timedelta
from typing import Any

import pytest

from helpers.records import OWNER, after, new_call, new_peer, new_record
from taskgate.admission.polls import BURST
from taskgate.auth.authorization import AccessEffect, AccessRule
from taskgate.auth.context import AuthContext
from taskgate.domain.events import Dispatched
from taskgate.domain.record import OwnerKey, TaskStatus
from taskgate.errors import Forbidden, MissingCapability, Penalized, RateLimited, TaskAlreadyFinished, TaskNotFound
from taskgate.protocol.host_requests import CancelTask, GetTask
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.stores.open import open_store
from unit.gateway.modern.task_desk import ACCEPT, AT, DONE, FAULT, MODERN, CountingStore, World, is_acknowledgement


@pytest.fixture
async def world() -> World:
    return World(CountingStore(await open_store("memory", None)))


# --- tasks/get: M-GET-1 to M-GET-6 ------------------------------------------------------------------------------------


async def test_a_task_that_goes_on_is_read_once_and_without_its_bodies(world: World) -> None:
    record = await world.keep(after(new_record(), Dispatched()))
    result = await world.get(record.id)
    assert (result["taskId"], result["status"]) == (record.id, "working")
    assert world.store.loads == {False: 1}


async def test_only_to_get_a_task_is_a_poll_of_it_and_its_answer_tells_the_interval(world: World) -> None:
    record = await world.asking(count=2)
    await world.update(record.id, input_1=ACCEPT)
    assert world.guard.polled.all == []
    for _ in range(BURST):
        assert (await world.get(record.id))["pollIntervalMs"] == 2000
    with pytest.raises(RateLimited):
        await world.get(record.id)
    before = list(world.guard.polled.all)
    await world.update(record.id, input_2=ACCEPT)
    await world.cancel(record.id)
    assert world.guard.polled.all == before


async def test_a_legacy_host_is_told_the_interval_too(world: World) -> None:
    world.dialect = LegacyDownstream("1")
    record = await world.keep(after(new_record(), Dispatched()))
    assert (await world.get(record.id))["pollInterval"] == 2000


async def test_to_get_a_task_without_the_extension_is_a_poll_too(world: World) -> None:
    record = await world.keep(new_record(call=new_call(peer=new_peer())))
    for _ in range(BURST):
        assert (await world.of_legacy(GetTask(7, record.id)))["pollIntervalMs"] == 2000
    with pytest.raises(RateLimited):
        await world.of_legacy(GetTask(7, record.id))


async def test_a_task_that_has_ended_shows_what_came_of_it(world: World) -> None:
    done, failed = await world.keep(after(new_record(), DONE)), await world.keep(after(new_record(), FAULT))
    assert (await world.get(done.id))["result"]["content"] == [{"type": "text", "text": "done"}]
    assert (await world.get(failed.id))["error"]["message"] == "no"


async def test_a_task_that_waits_shows_all_its_questions(world: World) -> None:
    record = await world.asking(count=2)
    assert list((await world.get(record.id))["inputRequests"]) == ["input-1", "input-2"]


@pytest.mark.parametrize("peer", [MODERN, new_peer()], ids=["stateless", "initialize"])
async def test_a_task_of_either_era_is_read(world: World, peer: Any) -> None:  # AMB-7
    record = await world.keep(new_record(call=new_call(peer=peer)))
    assert (await world.get(record.id))["status"] == "working"


async def test_a_task_under_an_earlier_key_of_the_caller_is_read_and_answered(world: World) -> None:
    rotated = AuthContext(key="new", previous_key=OWNER.context)
    record = await world.asking()
    assert (await world.get(record.id, rotated))["status"] == "input_required"
    await world.update(record.id, rotated, input_1=ACCEPT)
    assert (await world.now(record)).answers == {"input-1": ACCEPT}
    assert world.desk.heard == [((OWNER,), record.id, rotated)]


async def test_a_task_that_is_gone_before_its_bodies_are_read_is_not_found(world: World) -> None:
    record = await world.keep(after(new_record(), DONE))
    load = world.store.load

    async def expires(*args: Any, bodies: bool = False, **kwargs: Any) -> Any:
        return None if bodies else await load(*args, **kwargs)

    world.store.load = expires
    with pytest.raises(TaskNotFound):
        await world.get(record.id)


@pytest.mark.parametrize("method", ["get", "update", "cancel"])
@pytest.mark.parametrize("which", ["foreign", "unknown", "expired", "other mount"])
async def test_what_is_not_the_callers_is_not_found_and_stays_as_it_is(world: World, method: str, which: str) -> None:
    record = await world.asking(owner=OwnerKey("bob", AT) if which == "foreign" else OWNER)
    if which == "expired":
        world.clock.advance(timedelta(hours=2))
    task = "unknown" if which == "unknown" else record.id
    more: dict[str, Any] = {"input_1": ACCEPT} if method == "update" else {}
    with pytest.raises(TaskNotFound):
        await getattr(world, method)(task, mount="other" if which == "other mount" else AT, **more)
    kept = await world.store.load(record.owner, record.id, now=record.created_at)
    assert kept.revision == record.revision
    assert world.desk.heard == []


@pytest.mark.parametrize("method", ["get", "update", "cancel"])
async def test_what_the_rules_forbid_is_refused(method: str) -> None:
    rule = AccessRule(name="r", effect=AccessEffect.DENY, tool="build_*")
    world = World(CountingStore(await open_store("memory", None)), rule)
    record = await world.asking()
    with pytest.raises(Forbidden):
        await getattr(world, method)(record.id)


# --- tasks/cancel: M-CANCEL-1, M-CANCEL-2 -----------------------------------------------------------------------------


async def test_a_task_is_cancelled_and_that_acknowledged(world: World) -> None:
    record = await world.asking()
    assert is_acknowledgement(await world.cancel(record.id))
    assert (await world.now(record)).status is TaskStatus.CANCELLED


async def test_a_task_that_has_ended_stays_as_it_is_and_that_is_acknowledged(world: World) -> None:
    record = await world.keep(after(new_record(), DONE))
    assert is_acknowledgement(await world.cancel(record.id))
    assert (await world.now(record)).status is TaskStatus.COMPLETED


# --- hosts of the legacy era ------------------------------------------------------------------------------------------


async def test_a_legacy_host_sees_the_state_alone_of_a_task_that_has_ended(world: World) -> None:
    world.dialect = LegacyDownstream("1")
    record = await world.keep(after(new_record(), DONE))
    result = await world.get(record.id)
    assert (result["taskId"], result["status"]) == (record.id, "completed")
    assert "result" not in result
    assert world.store.loads == {False: 1}


async def test_a_legacy_host_sees_that_its_task_is_cancelled(world: World) -> None:
    world.dialect = LegacyDownstream("1")
    record = await world.asking()
    result = await world.cancel(record.id)
    assert (result["taskId"], result["status"]) == (record.id, "cancelled")


async def test_a_legacy_host_gets_an_error_for_the_cancellation_of_a_task_that_has_ended(world: World) -> None:
    world.dialect = LegacyDownstream("1")
    record = await world.keep(after(new_record(), DONE))
    with pytest.raises(TaskAlreadyFinished):
        await world.cancel(record.id)
    assert (await world.now(record)).status is TaskStatus.COMPLETED


# --- callers without the extension: AMB-19 ----------------------------------------------------------------------------

BOTH: Any = pytest.mark.parametrize("request_of", [GetTask, CancelTask])


@BOTH
@pytest.mark.parametrize("which", ["of the modern era", "foreign", "unknown"])
async def test_without_the_extension_every_other_task_is_the_same_refusal(
    world: World, request_of: Any, which: str
) -> None:
    owner = OwnerKey("bob", AT) if which == "foreign" else OWNER
    record = await world.keep(new_record(owner=owner, call=new_call(peer=new_peer() if which == "foreign" else MODERN)))
    with pytest.raises(MissingCapability) as refusal:
        await world.of_legacy(request_of(id=7, task="unknown" if which == "unknown" else record.id))
    assert refusal.value.required == {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    assert world.store.loads == {False: 1}
    assert (await world.store.load(owner, record.id, now=world.clock.now())).status is TaskStatus.WORKING


async def test_a_task_of_the_legacy_era_is_read_without_the_extension(world: World) -> None:
    record = await world.keep(after(new_record(), DONE))
    result = await world.of_legacy(GetTask(7, record.id))
    assert (result["status"], result["resultType"]) == ("completed", "complete")
    assert "result" in result


async def test_a_task_of_the_legacy_era_is_cancelled_without_the_extension(world: World) -> None:
    record = await world.keep(new_record())
    assert is_acknowledgement(await world.of_legacy(CancelTask(id=7, task=record.id)))
    assert (await world.now(record)).status is TaskStatus.CANCELLED


@BOTH
async def test_failed_look_ups_count_there_too(request_of: Any) -> None:
    world = World(CountingStore(await open_store("memory", None)), threshold=2)
    for number in range(3):
        with pytest.raises(MissingCapability):
            await world.of_legacy(request_of(id=7, task=f"guess-{number}"))
    with pytest.raises(Penalized):
        await world.of_legacy(request_of(id=7, task="guess"))
