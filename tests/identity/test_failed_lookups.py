"""A caller that looks for too many tasks that are not its own is refused those for a while, and no other task."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

import pytest

from helpers.gateway.gateway import Gateway, serve
from helpers.host.answers import Answer
from helpers.host.host import Host
from helpers.identity_provider import IdentityProvider
from helpers.manual_clock import ManualClock
from helpers.server import ScriptedServer
from helpers.waiting import bounded, until
from identity.gateways import Belongings, acquire, guarded, let_go, resource, scripted
from requirements import covers
from taskgate.wiring.build import Environment

THRESHOLD: Final = 3
WINDOW: Final = timedelta(seconds=20)
PENALTY: Final = timedelta(seconds=90)
UNKNOWN: Final = "U" * 32
ABOUT_TASKS: Final = ("tasks/get", "tasks/result", "tasks/cancel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Alice and Bob, and what each has."""

    server: ScriptedServer
    gateway: Gateway
    clock: ManualClock
    alice: Host
    bob: Host
    alices: Belongings
    bobs: Belongings


@pytest.fixture
async def scene(provider: IdentityProvider, clock: ManualClock) -> AsyncIterator[Scene]:
    clock.set_wall(datetime.now(UTC))
    failures = {"threshold": THRESHOLD, "window": "20s", "penalty": "90s"}
    async with scripted() as server:
        config = guarded(server, provider, auth={"lookup_failures": failures})
        async with serve(config, Environment(clock=clock)) as gateway:
            alice = await gateway.greeted(token=await provider.token(subject="alice"))
            bob = await gateway.greeted(token=await provider.token(subject="bob"))
            yield Scene(
                server=server,
                gateway=gateway,
                clock=clock,
                alice=alice,
                bob=bob,
                alices=await acquire(alice),
                bobs=await acquire(bob),
            )


NUMBERS = count()


def unknown() -> str:
    """An id of no task, another one each time."""
    return f"{next(NUMBERS):U>32}"


async def look(host: Host, times: int, task: str | None = None, method: str = "tasks/get") -> list[int]:
    """Look that often for a task, or for tasks that do not exist; the codes."""
    return [(await host.ask(method, {"taskId": task or unknown()})).code for _ in range(times)]


def penalized(answer: Answer, *, left: timedelta = PENALTY) -> bool:
    """Whether an answer is the refusal of the penalty box, whole."""
    seconds = int(left.total_seconds())
    data: dict[str, Any] = {"origin": "gateway", "reason": "penalty", "retryAfterMs": 1000 * seconds}
    return (
        answer.status == 200
        and answer.error
        == {"code": 429, "message": f"Too many failed look-ups of tasks; try again in {seconds} s", "data": data}
        and answer.headers["Retry-After"] == str(seconds)
    )


@covers("R-RES-4")
async def test_so_many_failed_look_ups_are_passed_over_and_the_next_one_brings_the_penalty(scene: Scene) -> None:
    assert await look(scene.alice, THRESHOLD) == [-32602] * THRESHOLD
    assert (await scene.alice.task(scene.alices.running))["status"] == "working"
    # The one too many is answered as every unknown task is.
    assert await look(scene.alice, 1) == [-32602]
    assert penalized(await scene.alice.ask("tasks/get", {"taskId": UNKNOWN}))


@covers("R-RES-4")
async def test_the_callers_own_tasks_are_served_during_a_penalty(scene: Scene) -> None:
    await look(scene.alice, THRESHOLD + 1)
    assert (await scene.alice.task(scene.alices.running))["status"] == "working"
    assert (await scene.alice.ask("tasks/result", {"taskId": scene.alices.ended})).result["content"] == []
    assert (await scene.alice.ask("tasks/list")).result["tasks"]
    assert (await scene.alice.ask("tasks/cancel", {"taskId": scene.alices.running})).result["status"] == "cancelled"


@covers("R-RES-4", "T13")
@pytest.mark.parametrize("method", ABOUT_TASKS)
async def test_during_a_penalty_foreign_tasks_are_answered_like_unknown_ones(scene: Scene, method: str) -> None:
    await look(scene.alice, THRESHOLD + 1)
    answers = [
        await scene.alice.ask(method, {"taskId": task}, id=1)
        for task in (scene.bobs.running, scene.bobs.ended, UNKNOWN)
    ]
    assert all(map(penalized, answers))
    assert len({answer.text for answer in answers}) == 1
    assert (await scene.bob.task(scene.bobs.running))["status"] == "working"


@covers("R-RES-4")
async def test_a_task_that_is_looked_for_again_counts_once(scene: Scene) -> None:
    assert await look(scene.alice, 10 * THRESHOLD, UNKNOWN) == [-32602] * 10 * THRESHOLD
    assert await look(scene.alice, THRESHOLD) == [-32602] * THRESHOLD
    assert penalized(await scene.alice.ask("tasks/get", {"taskId": unknown()}))


@pytest.mark.parametrize("method", ABOUT_TASKS)
async def test_failures_of_every_method_count(scene: Scene, method: str) -> None:
    await look(scene.alice, THRESHOLD + 1, method=method)
    assert penalized(await scene.alice.ask("tasks/get", {"taskId": unknown()}))


@covers("R-RES-4", "I-ISO-3")
async def test_foreign_tasks_and_unknown_ones_count_alike(scene: Scene) -> None:
    for number, task in enumerate([unknown(), scene.bobs.running, scene.bobs.ended, unknown()]):
        assert number <= THRESHOLD
        assert await look(scene.alice, 1, task) == [-32602]
    assert penalized(await scene.alice.ask("tasks/get", {"taskId": unknown()}))


async def test_no_other_caller_is_penalized_and_everybody_else_may_fail_as_often(
    scene: Scene, provider: IdentityProvider
) -> None:
    await look(scene.alice, THRESHOLD + 1)
    others = {"another subject": scene.bob}
    others["another client"] = await scene.gateway.greeted(token=await provider.token("host-b", subject="alice"))
    for host in others.values():
        assert await look(host, THRESHOLD) == [-32602] * THRESHOLD
        assert (await host.ask("tasks/list")).result["tasks"] is not None
    assert (await scene.bob.task(scene.bobs.running))["status"] == "working"


async def in_another_session(scene: Scene, provider: IdentityProvider) -> Host:
    return await scene.gateway.greeted(token=scene.alice.token)


async def with_a_new_token(scene: Scene, provider: IdentityProvider) -> Host:
    host = scene.alice.again()
    host.token = await provider.token(subject="alice")
    return host


@pytest.mark.parametrize("somewhere", [in_another_session, with_a_new_token])
async def test_nobody_leaves_the_box(
    scene: Scene, provider: IdentityProvider, somewhere: Callable[[Scene, IdentityProvider], Awaitable[Host]]
) -> None:
    await look(scene.alice, THRESHOLD + 1)
    host = await somewhere(scene, provider)
    assert penalized(await host.ask("tasks/get", {"taskId": unknown()}))


async def test_a_penalty_at_one_mount_is_none_at_another(scene: Scene, provider: IdentityProvider) -> None:
    await look(scene.alice, THRESHOLD + 1)
    token = await provider.token(subject="alice", resource=resource("orders"))
    other = await scene.gateway.greeted(mount="orders", token=token)
    assert await look(other, THRESHOLD) == [-32602] * THRESHOLD


async def test_whoever_is_in_the_box_still_calls_tools_and_starts_tasks(scene: Scene) -> None:
    await look(scene.alice, THRESHOLD + 1)
    assert (await scene.alice.ask("ping")).result == {}
    assert (await scene.alice.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    assert (await scene.alice.start("echo", {}))["status"] == "working"


async def test_whoever_waits_already_when_the_penalty_comes_gets_the_result(scene: Scene) -> None:
    waiting = asyncio.create_task(scene.alice.ask("tasks/result", {"taskId": scene.alices.running}))
    async with bounded():
        while not await scene.gateway.count("taskgate_streams", side="downstream", kind="response"):
            pass
    await look(scene.alice, THRESHOLD + 1)
    assert penalized(await scene.alice.ask("tasks/result", {"taskId": unknown()}))
    let_go(scene.server)
    async with bounded():
        assert (await waiting).result["content"] == []


async def test_the_penalty_ends_when_it_said_and_what_fails_meanwhile_does_not_make_it_longer(scene: Scene) -> None:
    await look(scene.alice, THRESHOLD + 1)
    # Short of the end of the tasks, which live for a minute.
    scene.clock.advance(timedelta(seconds=30))
    left = PENALTY - timedelta(seconds=30)
    assert penalized(await scene.alice.ask("tasks/get", {"taskId": UNKNOWN}), left=left)
    scene.clock.advance(left)
    kept = (await scene.alice.start("echo", {}))["taskId"]
    assert (await scene.alice.task(kept))["taskId"] == kept
    assert await look(scene.alice, THRESHOLD) == [-32602] * THRESHOLD


async def test_failures_are_forgotten_after_the_window(scene: Scene) -> None:
    await look(scene.alice, THRESHOLD)
    scene.clock.advance(WINDOW)
    assert await look(scene.alice, THRESHOLD) == [-32602] * THRESHOLD
    assert (await scene.alice.task(scene.alices.running))["status"] == "working"


async def test_operators_are_told_of_each_caller_that_enumerates_once(scene: Scene) -> None:
    shown = scene.gateway.count

    async def told() -> tuple[float, float, float]:
        return (
            await shown("taskgate_security_events_total", type="enumeration_suspected"),
            await shown("taskgate_penalized_contexts"),
            await shown("taskgate_task_access_denials_total", upstream="reports"),
        )

    async def is_told(*expected: float) -> None:
        # Why they failed is looked up a while after.
        await until(told, lambda found: found == expected)

    await look(scene.alice, THRESHOLD)
    await is_told(0, 0, THRESHOLD)
    await look(scene.alice, 5)
    await is_told(1, 1, THRESHOLD + 1)
    await look(scene.bob, 5)
    await is_told(2, 2, 2 * (THRESHOLD + 1))
    scene.clock.advance(PENALTY)
    await is_told(2, 0, 2 * (THRESHOLD + 1))
