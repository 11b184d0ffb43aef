"""Questions of a server while the store fails: none is lost, and no host is asked what is not waited for any more."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from helpers.failing_store import FailingStore
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, StoreUnavailable, open_store, serve
from helpers.host.answers import Stream
from helpers.host.host import Host
from helpers.server import ScriptedServer, TalkingTool, note
from helpers.waiting import eventually
from interaction.questions import ACCEPTED, DONE, ELICIT, capable

STATUS = "notifications/tasks/status"
OPENINGS: dict[str, Callable[[Host, str], AbstractAsyncContextManager[Stream]]] = {
    "get": lambda host, _: host.listen(),
    "result": lambda host, task: host.asking("tasks/result", {"taskId": task}),
}


class Damaged(FailingStore):
    """A store that works until it is told not to; the records in `unreadable` cannot be loaded."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.unreadable: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        operation = super().__getattr__(name)
        if name != "load":
            return operation

        async def load(owner: Any, id: str, **more: Any) -> Any:
            if id in self.unreadable:
                self.refused.append(id)
                raise StoreUnavailable("The record is damaged, as the test wants")
            return await operation(owner, id, **more)

        return load


@pytest.fixture
async def store() -> Damaged:
    """A store in memory."""
    return Damaged(await open_store("memory", None))


@pytest.fixture
async def gateway(server: ScriptedServer, store: Damaged) -> AsyncIterator[Gateway]:
    """A gateway over that store."""
    async with serve(configuration({"reports": server.url}), Environment(store=store)) as gateway:
        yield gateway
        store.failing, store.unreadable = set(), set()


async def end(host: Host, tool: TalkingTool, task: str) -> None:
    """Have the tool answer, and see that the host gets that."""
    await tool.finish(DONE)
    assert (await host.ask("tasks/result", {"taskId": task})).result["content"] == DONE["content"]


@pytest.mark.parametrize("kind", ["get", "result"])
@pytest.mark.parametrize("operation", ["load", "swap"])
async def test_a_question_whose_answer_could_not_be_kept_is_asked_again_on_the_next_stream(
    gateway: Gateway, tool: TalkingTool, store: Damaged, operation: str, kind: str
) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    await tool.ask(1)
    await host.until(task, "input_required")
    async with OPENINGS[kind](host, task) as stream:
        await host.task(task)
        asked = await stream.until(ELICIT)
        store.failing = {operation}
        refused = await host.respond(asked["id"], ACCEPTED)
        assert refused.code == 503
        store.failing = set()
    async with OPENINGS[kind](host, task) as stream:
        again = await stream.until(ELICIT)
        assert again["id"] == asked["id"]
        await host.respond(again["id"], ACCEPTED)
        assert (await tool.told(1))["result"] == ACCEPTED
    await end(host, tool, task)


async def test_an_answer_that_could_not_be_kept_may_be_given_again(
    gateway: Gateway, tool: TalkingTool, store: Damaged
) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask(1)
        asked = await stream.until(ELICIT)
        store.failing = {"swap"}
        assert (await host.respond(asked["id"], ACCEPTED)).code == 503
        store.failing = set()
        assert (await host.respond(asked["id"], ACCEPTED)).status == 202
        assert (await tool.told(1))["result"] == ACCEPTED
        await tool.finish(DONE)
        await stream.result()
        assert len(stream.of(ELICIT)) == 1


@pytest.mark.parametrize("operation", ["page", "load"])
async def test_a_get_stream_that_opens_while_the_store_fails_is_asked_once_it_works(
    gateway: Gateway, tool: TalkingTool, store: Damaged, operation: str
) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    await tool.ask(1)
    await host.until(task, "input_required")
    store.failing = {operation}
    async with host.listen() as get:
        await eventually(lambda: operation in store.refused)
        store.failing = set()
        await host.task(task)
        await host.respond((await get.until(ELICIT))["id"], ACCEPTED)
        assert (await tool.told(1))["result"] == ACCEPTED
    await end(host, tool, task)


async def test_a_question_that_was_held_back_is_asked_though_the_store_failed_when_its_time_came(
    gateway: Gateway, tool: TalkingTool, store: Damaged
) -> None:
    host = await capable(gateway)
    async with host.listen() as get:
        task = (await host.start("report"))["taskId"]
        await tool.ask(1)
        await get.until(STATUS)
        assert get.of(ELICIT) == []
        store.refused, store.failing = [], {"load"}
        await eventually(lambda: store.refused)
        store.failing = set()
        await host.respond((await get.until(ELICIT))["id"], ACCEPTED)
        assert (await tool.told(1))["result"] == ACCEPTED
    await end(host, tool, task)


async def test_a_question_that_was_given_up_before_it_could_be_written_is_asked_of_nobody(
    server: ScriptedServer, tool: TalkingTool, store: Damaged
) -> None:
    rules = {"input_required": {"max_wait": "200ms", "max_outstanding": 1}}
    around = Environment(store=store)
    async with serve(configuration({"reports": server.url}, tasks=rules), around) as gateway:
        host = await capable(gateway)
        task = (await host.start("report"))["taskId"]
        async with host.asking("tasks/result", {"taskId": task}) as stream:
            await eventually(lambda: tool.turn)
            store.failing = {"swap"}
            await tool.ask(1)
            assert (await tool.told(1))["result"] == {"action": "cancel"}
            store.failing = set()
            # There is room for it, and it would be written after the first if that were.
            await tool.ask(2, params={"message": "second", "requestedSchema": {"type": "object", "properties": {}}})
            assert (await tool.told(2))["result"] == {"action": "cancel"}
            await host.until(task, "working")
            await tool.finish(DONE)
            await stream.result()
            assert {asked["params"]["message"] for asked in stream.of(ELICIT)} <= {"second"}


async def test_a_record_that_cannot_be_read_keeps_no_question_and_no_news_of_another_task_back(
    gateway: Gateway, tool: TalkingTool, server: ScriptedServer, store: Damaged
) -> None:
    server.script["broken"] = damaged = TalkingTool()
    host = await capable(gateway)
    async with host.listen() as get:
        unreadable = (await host.start("broken"))["taskId"]
        task = (await host.start("report"))["taskId"]
        await eventually(lambda: damaged.turn and tool.turn)
        # Nobody can read what it says from then on.
        store.unreadable = {unreadable}
        await damaged.say(
            note("notifications/progress", progressToken=damaged.called.token, progress=1, message="so far")
        )
        await eventually(lambda: unreadable in store.refused)
        await tool.ask(2)
        await host.task(task)
        await host.respond((await get.until(ELICIT))["id"], ACCEPTED)
        assert (await tool.told(2))["result"] == ACCEPTED
        await tool.finish(DONE)
        await host.ask("tasks/result", {"taskId": task})
        await eventually(lambda: [note for note in get.of(STATUS) if note["params"]["status"] == "completed"])
        assert unreadable not in [note["params"]["taskId"] for note in get.of(STATUS)]
        store.unreadable = set()
        await eventually(lambda: unreadable in [note["params"]["taskId"] for note in get.of(STATUS)])
    await end(host, damaged, unreadable)


async def test_a_record_that_cannot_be_read_keeps_no_other_from_being_asked_when_a_stream_opens(
    gateway: Gateway, tool: TalkingTool, server: ScriptedServer, store: Damaged
) -> None:
    server.script["broken"] = damaged = TalkingTool()
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    await tool.ask(2)
    await host.until(task, "input_required")
    # Whichever order they are looked at in is the store's affair; here the newest comes first.
    unreadable = (await host.start("broken"))["taskId"]
    await damaged.ask(1)
    await host.until(unreadable, "input_required")
    store.unreadable = {unreadable}
    async with host.listen() as get:
        await host.task(task)
        await host.respond((await get.until(ELICIT))["id"], ACCEPTED)
        await tool.told(2)
        assert unreadable in store.refused
    store.unreadable = set()
    await end(host, tool, task)
    await end(host, damaged, unreadable)
