"""What a usual request costs, counted in functions of the package that it enters: a budget that only goes down.

Counted on a running gateway on real sockets, on the thread of its loop: the count is the same on every machine, but for
a turn more or less where the network cuts a message, so the least of several requests is taken. A coroutine that goes
on after a wait counts once more. With a store on disk, metrics, an audit log and a rate.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import taskgate
from helpers.counted_calls import counted_calls
from helpers.scripted_upstream import ScriptedServer
from helpers.waiting import bounded
from helpers.whole_gateway import WholeGateway, configuration, running

pytestmark = pytest.mark.alone
PACKAGE = Path(taskgate.__file__).parent
ROUNDS = 60
ROOMY = {"name": "calls", "scope": "context", "methods": ["*"], "rate": "1000/s", "burst": 1000}

Walk = Counter[str]


async def least(ask: Callable[[], Awaitable[object]]) -> Walk:
    """The shortest walk of several requests on a kept connection."""
    walks = []
    async with bounded(30):
        for _ in range(ROUNDS):
            with counted_calls() as calls:
                await ask()
            walks.append(calls.within(PACKAGE))
    return min(walks, key=Counter.total)


def told(walk: Walk) -> str:
    """The walk, so that a failure shows what made it longer."""
    lines = "\n".join(f"{times:4} {place}" for place, times in sorted(walk.items()))
    return f"{walk.total()} calls in {len({place.split(':')[0] for place in walk})} modules:\n{lines}"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[WholeGateway]:
    async with ScriptedServer() as server:
        config = configuration({"reports": server.url}, folder=tmp_path, limits={"rate": [ROOMY]})
        async with running(config, data_directory=tmp_path) as gateway:
            yield gateway


async def test_a_relayed_call_of_a_session_stays_within_its_budget(gateway: WholeGateway) -> None:
    host = await gateway.greeted()
    walk = await least(lambda: host.call("echo", {"text": "hello"}))
    assert walk.total() <= 306, told(walk)


async def test_a_relayed_call_of_the_modern_era_stays_within_its_budget(gateway: WholeGateway) -> None:
    host = gateway.modern()
    walk = await least(lambda: host.ask("tools/call", {"name": "echo", "arguments": {"text": "hello"}}))
    assert walk.total() <= 378, told(walk)


async def test_a_look_at_a_task_stays_within_its_budget(gateway: WholeGateway) -> None:
    host = await gateway.greeted()
    made = await host.call("echo", {"text": "hello"}, task={})
    task = made.result["task"]["taskId"]
    walk = await least(lambda: host.ask("tasks/get", {"taskId": task}))
    assert walk.total() <= 180, told(walk)
