"""A call that is made twice runs once: who comes second waits for what comes of the first."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from helpers.failing_store import HoldingStore
from helpers.records import OWNER, new_call, new_record
from helpers.waiting import eventually
from taskgate.admission.coalescing import NOT_A_TASK, CoalesceKey, check_same_call
from taskgate.domain.record import OwnerKey
from taskgate.domain.versions import Era
from taskgate.errors import CutOff, InvalidParams, UpstreamFailed, UpstreamReason
from taskgate.protocol.host_requests import CallTool, key_digest
from taskgate.protocol.messages import Params
from taskgate.stores.open import open_store
from taskgate.system.offload import LARGE
from taskgate.telemetry.events import CallCoalesced
from unit.admission.coalescing_desk import ANOTHER, WINDOW, World, call, ended, keyed, left, retried


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(HoldingStore(await open_store("memory", None)))
    yield world
    await world.close()
    assert world.coalescer.running == 0


# --- calls that run ---------------------------------------------------------------------------------------------------


async def test_a_call_that_nothing_lets_join_runs_for_itself(world: World) -> None:
    plain = CoalesceKey(OWNER, call(), None)
    assert not plain.is_coalescable
    one, other = await world.ask(plain), await world.ask(plain)
    world.runs[0].set_result("one")
    world.runs[1].set_result("other")
    assert [await ended(one), await ended(other)] == ["one", "other"]
    assert world.emitted.all == []


@pytest.mark.parametrize(("asking", "how"), [(retried(), "retry"), (keyed(), "key")])
async def test_the_same_call_waits_for_what_comes_of_the_one_that_runs(
    world: World, asking: CoalesceKey, how: str
) -> None:
    assert asking.is_coalescable
    one, other = await world.ask(asking), await world.ask(asking)
    world.runs[0].set_result("done")
    assert [await ended(one), await ended(other)] == ["done", "done"]
    assert len(world.runs) == 1
    assert world.emitted.all == [CallCoalesced("reports", how)]


async def test_how_the_arguments_are_written_makes_no_difference(world: World) -> None:
    for text in ('{"a":1,"b":2}', '{ "b" : 2, "a" : 1 }'):
        await world.ask(retried(call(text)))
    assert len(world.runs) == 1


@pytest.mark.parametrize(
    "other",
    [
        retried(owner=OwnerKey("another", OWNER.mount)),
        retried(owner=OwnerKey(OWNER.context, "another")),
        retried(call(tool="burn")),
        retried(call('{"year":2027}')),
        retried(call(key="k")),
        retried(accepts_task=True),
        retried(era=Era.MODERN),
        retried(features={"elicitation": {}}),
        retried(call(params=Params('{"name":"build_report","arguments":{"year":2026},"_meta":{"account":"B"}}'))),
        retried(scopes=frozenset({"read"})),
    ],
    ids=["context", "mount", "tool", "arguments", "key", "task", "era", "features", "_meta", "scopes"],
)
async def test_what_is_not_the_same_in_all_runs_for_itself(world: World, other: CoalesceKey) -> None:
    await world.ask(retried())
    await world.ask(other)
    assert len(world.runs) == 2
    assert world.emitted.all == []


async def test_two_keys_are_two_calls_however_alike(world: World) -> None:
    await world.ask(retried(call(key="a")))
    await world.ask(retried(call(key="b")))
    assert len(world.runs) == 2


@pytest.mark.parametrize("another", [call('{"year":2027}', key="k"), call(tool="burn", key="k")])
async def test_the_key_of_another_call_is_refused(world: World, another: CallTool) -> None:
    await world.ask(keyed())
    with pytest.raises(InvalidParams, match=ANOTHER):
        await ended(await world.ask(keyed(another)))
    # The same one is not disturbed.
    assert not (await world.ask(keyed())).done()
    # Somebody else's key is theirs.
    await world.ask(keyed(another, owner=OwnerKey("another", OWNER.mount)))
    assert len(world.runs) == 2


@pytest.mark.parametrize("changes", [{"era": Era.MODERN}, {"features": {"sampling": {}}}], ids=["era", "asked"])
async def test_a_key_makes_no_second_run_for_a_host_whom_the_answer_may_not_fit(
    world: World, changes: dict[str, Any]
) -> None:
    await world.ask(keyed())
    with pytest.raises(InvalidParams, match=ANOTHER):
        await ended(await world.ask(keyed(**changes)))
    assert len(world.runs) == 1


async def test_what_a_host_can_be_asked_is_the_same_in_any_order(world: World) -> None:
    for features in ({"sampling": {}, "roots": {"x": 1}}, {"roots": {"x": 1}, "sampling": {}}):
        await world.ask(retried(features=features))
    assert len(world.runs) == 1


async def test_the_key_of_a_call_that_runs_is_that_of_no_task_until_it_is_over(world: World) -> None:
    asked = await world.ask(keyed())
    others = (OwnerKey("another", OWNER.mount), OwnerKey(OWNER.context, "another"))
    world.coalescer.check_key_unused(others, "k")
    world.coalescer.check_key_unused((OWNER,), "another")
    with pytest.raises(InvalidParams, match=NOT_A_TASK):
        world.coalescer.check_key_unused((*others, OWNER), "k")
    world.runs[0].set_result("done")
    await ended(asked)
    world.coalescer.check_key_unused((OWNER,), "k")


async def test_once_it_is_over_the_same_call_runs_again(world: World) -> None:
    for asking in (retried(), keyed()):
        for _ in range(2):
            asked = await world.ask(asking)
            world.runs[-1].set_result("done")
            await ended(asked)
    assert len(world.runs) == 4


async def test_a_retry_after_the_window_runs_for_itself_and_is_the_one_to_join_from_then_on(world: World) -> None:
    first = await world.ask(retried())
    world.clock.advance(WINDOW - timedelta(milliseconds=1))
    await world.ask(retried())
    world.clock.advance(timedelta(milliseconds=1))
    await world.ask(retried())
    world.clock.advance(WINDOW / 2)
    last = await world.ask(retried())
    assert len(world.runs) == 2
    world.runs[0].set_result("first")
    assert await ended(first) == "first"
    await world.ask(retried())
    assert len(world.runs) == 2
    world.runs[1].set_result("second")
    assert await ended(last) == "second"


async def test_a_key_joins_however_long_the_call_runs(world: World) -> None:
    await world.ask(keyed())
    world.clock.advance(timedelta(days=1))
    await world.ask(keyed())
    assert len(world.runs) == 1


async def test_a_failure_is_that_of_everybody_who_waits(world: World) -> None:
    one, other = await world.ask(keyed()), await world.ask(keyed())
    world.runs[0].set_exception(UpstreamFailed(UpstreamReason.CLOSED, "gone", dispatched=True))
    for asked in (one, other):
        with pytest.raises(UpstreamFailed, match="gone"):
            await ended(asked)


async def test_the_call_goes_on_when_who_began_it_leaves_and_ends_when_the_last_one_does(world: World) -> None:
    first, second, third = [await world.ask(retried()) for _ in range(3)]
    await left(first)
    assert not world.runs[0].done()
    await left(second)
    assert not world.runs[0].done()
    await left(third)
    assert world.runs[0].cancelled()
    # Nobody joins what was given up.
    await world.ask(retried())
    assert len(world.runs) == 2


async def test_the_gateway_ends_what_runs_and_says_so(world: World) -> None:
    asked = await world.ask(keyed())
    await world.coalescer.close()
    with pytest.raises(CutOff):
        await ended(asked)


async def test_of_more_calls_than_are_remembered_each_runs_for_itself() -> None:
    world = World(HoldingStore(await open_store("memory", None)), most=1)
    for _ in range(2):
        await world.ask(keyed(call(key="a")))
        await world.ask(keyed(call(key="b")))
    assert len(world.runs) == 3
    world.runs[1].set_result("done")
    await world.close()


# --- keys of records --------------------------------------------------------------------------------------------------


def test_a_record_keeps_no_key_but_a_digest() -> None:
    assert key_digest("k") == key_digest("k") != key_digest("l")
    assert "secret" not in key_digest("secret")


async def test_the_same_call_may_have_the_key_of_a_task_and_no_other() -> None:
    record = new_record()
    await check_same_call(record, call('{ "year" : 2026 }', key="k"))
    for another in (call('{"year":2027}', key="k"), call(tool="burn", key="k")):
        with pytest.raises(InvalidParams, match=ANOTHER):
            await check_same_call(record, another)


async def test_progress_tokens_make_no_difference_and_other_meta_does() -> None:
    kept = [
        new_call(params=f'{{"name":"build_report","arguments":{{"year":2026}},"_meta":{meta}}}')
        for meta in ("{}", '{"x":1}')
    ]
    with_token = Params('{"name":"build_report","_meta":{"progressToken":', '},"arguments":{"year":2026}}')
    await check_same_call(new_record(call=kept[0]), call(params=with_token))
    with pytest.raises(InvalidParams, match=ANOTHER):
        await check_same_call(new_record(call=kept[1]), call(params=with_token))


async def test_a_large_call_has_its_place_before_it_is_read(world: World) -> None:
    large = f'{{"many":[{"0," * LARGE}0]}}'
    asking = keyed(call(large, key="k"))
    first = asyncio.create_task(world.coalescer.run(asking, world.run))
    world.waiting.append(first)
    await asyncio.sleep(0)
    with pytest.raises(InvalidParams, match=NOT_A_TASK):
        world.coalescer.check_key_unused((OWNER,), "k")
    same = await world.ask(asking)
    for other in (call(large[:-2] + ",1]}", key="k"), call(key="k")):
        with pytest.raises(InvalidParams, match=ANOTHER):
            await ended(await world.ask(keyed(other)))
    await eventually(lambda: world.emitted.all)
    world.runs[0].set_result("done")
    assert [await ended(first), await ended(same)] == ["done", "done"]
    assert len(world.runs) == 1


async def test_nothing_of_a_call_outlives_it(world: World) -> None:
    await world.ask(keyed())
    world.runs[0].set_result("done")
    await eventually(lambda: world.coalescer.running == 0)
