"""Tasks of which the store could not say that it had written them: nobody knows of them, so they do not go on."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, Store, StoreUnavailable, open_store, serve
from helpers.host.host import called
from helpers.server import Hold, ScriptedServer
from helpers.virtual_time import pass_time
from helpers.waiting import bounded, eventually
from interaction.questions import DONE

MOST = 256
"""How many such tasks wait to be ended at once."""


class LosingStore:
    """Hands everything to `inner`; what `loses` names is done, but raises, and what `fails` names is not done."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.loses: set[str] = set()
        self.fails: set[str] = set()
        self.refused = 0

    def recall(self, *_: object, **__: object) -> None:
        """Nothing, so that each look-up is a `load`."""

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._inner, name)

        async def perform(*args: Any, **kwargs: Any) -> Any:
            if name in self.fails:
                self.refused += 1
                raise StoreUnavailable("The store fails, as the test wants")
            value = await operation(*args, **kwargs)
            if name in self.loses:
                raise StoreUnavailable("The store cannot say, as the test wants")
            return value

        return perform

    async def until(self, wanted: dict[str, int]) -> None:
        """Wait until there are these tasks and no others, by their status."""
        async with bounded():
            while {
                str(status): count for status, count in (await self._inner.census()).tasks.items() if count
            } != wanted:
                await asyncio.sleep(0)


@pytest.fixture
async def store() -> LosingStore:
    return LosingStore(await open_store("memory", None))


@pytest.fixture
async def gateway(server: ScriptedServer, store: LosingStore) -> AsyncIterator[Gateway]:
    """A gateway that makes a task of every call that is not over at once, and of `echo` before it leaves."""
    tasks = {"upgrade": [{"tool": "echo", "mode": "always"}, {"tool": "*", "mode": "auto"}], "inline_grace": "0s"}
    around = Environment(store=store)  # type: ignore[arg-type]
    limits = {"rate": [], "concurrency": {"tasks_per_context": 2 * MOST}}
    async with serve(configuration({"reports": server.url}, tasks=tasks, limits=limits), around) as gateway:
        yield gateway


async def test_a_task_that_was_to_be_made_of_a_call_is_ended_and_its_call_goes_on(
    server: ScriptedServer, gateway: Gateway, store: LosingStore
) -> None:
    server.script["report"] = hold = Hold()
    store.loses = {"insert"}
    async with gateway.modern().asking("tools/call", called("report")) as asked:
        await store.until({"failed": 1})
        hold.release(DONE)
        assert (await asked.answer()).result["content"] == DONE["content"]
    assert server.cancelled == []


@pytest.mark.parametrize("is_modern", [True, False])
async def test_a_task_that_was_to_be_made_at_once_is_ended_and_nothing_is_called(
    server: ScriptedServer, gateway: Gateway, store: LosingStore, is_modern: bool
) -> None:
    store.loses = {"insert"}
    if is_modern:
        answer = await gateway.modern().call("echo")
    else:
        answer = await (await gateway.greeted()).call("echo", task={})
    assert answer.error["data"]["reason"] == "store"
    await store.until({"failed": 1})
    assert server.heard("tools/call") == []


async def test_such_a_task_is_ended_once_the_store_is_there(gateway: Gateway, store: LosingStore) -> None:
    store.loses, store.fails = {"insert"}, {"load"}
    assert (await gateway.modern().call("echo")).error["data"]["reason"] == "store"
    await eventually(lambda: store.refused > 1)
    await store.until({"working": 1})
    store.fails = set()
    await store.until({"failed": 1})


async def test_no_more_of_them_wait_for_the_store_than_there_may(gateway: Gateway, store: LosingStore) -> None:
    store.loses, store.fails = {"insert"}, {"load"}
    for _ in range(MOST + 1):
        await gateway.modern().call("echo")
    store.fails = set()
    await store.until({"failed": MOST, "working": 1})


async def test_none_of_them_keeps_the_gateway_from_ending(gateway: Gateway, store: LosingStore) -> None:
    store.loses, store.fails = {"insert"}, {"load"}
    await gateway.modern().call("echo")
    await store.until({"working": 1})
    clock = asyncio.get_running_loop()
    began = clock.time()
    async with bounded():
        await gateway.drain()
    assert clock.time() - began < 10
    refused = store.refused
    # Nobody goes on trying.
    await pass_time(60)
    assert store.refused == refused
    await store.until({"working": 1})
