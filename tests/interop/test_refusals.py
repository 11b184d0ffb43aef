"""Released hosts meet every refusal before a real server, read why and for how long, and go on in the same session.

All hosts meet a refusal at once, each as a caller of its own. Nobody waits for longer than it was told to.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from signal import SIGHUP

import pytest
import pytest_asyncio

from helpers.waiting import eventually
from interop.peers import require_peers
from interop.playing import LONGEST, MAKERS, UNKNOWN, all_play, begun, refusal, until_refused, wait_as_told, word_for
from interop.refusals import ENDS, KINDS, WAYS, Kind, expected
from interop.staging import LITTLE, SESSIONS, Stage, stage_in
from interop.stepped import ENVIRONMENTS

# One stage for all: the output of its processes is read by the loop that started them.
pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """Servers, gateways, hosts."""
    require_peers(*ENVIRONMENTS)
    async with stage_in(tmp_path_factory.mktemp("stage")) as everything:
        yield everything


async def test_who_calls_too_often_may_call_again_when_the_refusal_says(stage: Stage) -> None:
    async def play(kind: Kind) -> None:
        async with stage.connected(kind, "calls") as host:
            data = refusal(await until_refused(lambda: host.call("echo", word="one")), "rate")
            assert data["policy"] == "calls"
            await wait_as_told(data)
            await host.assert_usable()

    await all_play(play)


async def test_who_polls_too_often_loses_neither_the_task_nor_the_budget_for_calls(stage: Stage) -> None:
    async def play(kind: Kind) -> None:
        async with stage.connected(kind, "polls") as host:
            key = f"{kind.name} polls"
            task = (await host.task("hold", key=key))["task"]
            data = refusal(await until_refused(lambda: host.look(task)), "rate")
            assert data["policy"] == "polls"
            await host.assert_usable()
            await wait_as_told(data)
            assert (await host.look(task))["status"] == "working"
            await stage.ask(kind, "let_go", key)

    await all_play(play, MAKERS)


async def test_who_has_as_many_tasks_as_may_be_makes_another_when_one_has_ended(stage: Stage) -> None:
    async def play(kind: Kind) -> None:
        async with stage.connected(kind, "concurrency") as host:
            key = f"{kind.name} concurrency"
            task = (await host.task("hold", key=key))["task"]
            data = refusal(await host.task("report", size=1), "concurrency")
            assert (data["limit"], data["scope"]) == (1, "context")
            assert data["retryAfterMs"] > 0
            await host.assert_usable()
            await stage.ask(kind, "let_go", key)
            assert await host.outcome(task) == {"text": f"held {key}", "is_error": False}
            assert "task" in await host.task("report", size=1)

    await all_play(play, MAKERS)


async def test_who_has_as_much_kept_as_may_be_can_still_fetch_it_and_call(stage: Stage) -> None:
    async def play(kind: Kind) -> None:
        async with stage.connected(kind, "bytes") as host:
            task = (await host.task("report", size=2 * LITTLE))["task"]
            assert len((await host.outcome(task))["text"]) == 2 * LITTLE
            data = refusal(await host.task("report", size=1), "bytes")
            assert (data["limit"], data["scope"]) == (LITTLE, "context")
            assert data["retryAfterMs"] > 0
            assert len((await host.outcome(task))["text"]) == 2 * LITTLE
            await host.assert_usable()

    await all_play(play, MAKERS)


@pytest.mark.parametrize("mount", ["full", "slow"])
async def test_a_call_that_finds_no_room_at_the_server_or_waits_too_long_can_be_made_again(
    stage: Stage, mount: str
) -> None:
    async def play(kind: Kind) -> None:
        async with stage.connected(kind, mount, mount=f"{mount}-{kind.name}") as host:
            key = f"{kind.name} {mount}"
            holding = await begun(stage, host, key)
            data = refusal(await host.call("echo", word="one"), "queue")
            assert data["retryAfterMs"] > 0
            await stage.ask(kind, "let_go", key)
            assert await holding == {"text": f"held {key}", "is_error": False}
            await host.assert_usable()

    await all_play(play)


async def test_a_task_says_that_it_waits_and_if_it_waited_too_long_it_says_that_it_never_ran(stage: Stage) -> None:
    """Hosts that do not fetch the error of a failed task find the same words in its status."""

    async def play(kind: Kind) -> None:
        async with stage.connected(kind, "waiting", mount=f"slow-{kind.name}") as host:
            key = f"{kind.name} waiting"
            holding = await begun(stage, host, key)
            task = (await host.task("report", size=1))["task"]
            assert await host.look(task) == {"status": "working", "message": "Queued (0 ahead)"}
            told = await host.outcome(task)
            if kind.name == "fastmcp-4":
                assert told["is_error"]
            elif kind.name == "client":
                assert "s in the queue of the server" in told["error"]["message"]
            else:
                assert refusal(told, "queue")["dispatched"] is False
            ended = await host.look(task)
            assert (ended["status"], "s in the queue of the server" in ended["message"]) == ("failed", True)
            await stage.ask(kind, "let_go", key)
            await holding
            await host.assert_usable()

    await all_play(play, MAKERS)


async def test_a_host_that_guesses_tasks_finds_its_own_during_the_penalty(stage: Stage) -> None:
    async def play(kind: Kind) -> None:
        async with stage.connected(kind, "penalty") as host:
            task = (await host.task("report", size=1))["task"]
            for letter in "ABC":
                assert (await host.look(letter * 32))["error"]["code"] == -32602
            data = refusal(await host.look(UNKNOWN), "penalty")
            await host.assert_usable()
            assert (await host.look(task))["status"] in ("working", "completed")
            await wait_as_told(data)
            assert (await host.look(UNKNOWN))["error"]["code"] == -32602
            assert (await host.look(task))["status"] in ("working", "completed")

    await all_play(play, MAKERS)


async def test_who_may_not_call_a_tool_may_call_others(stage: Stage) -> None:
    async def play(kind: Kind) -> None:
        async with stage.connected(kind, "policy") as host:
            refusal(await host.call("forbidden"), "policy", 403)
            await host.assert_usable()

    await all_play(play)


async def test_without_the_store_no_task_is_made_but_calls_are_and_tasks_again_once_it_is_back(stage: Stage) -> None:
    async with AsyncExitStack() as running:
        hosts = {kind: await running.enter_async_context(stage.connected(kind, "store")) for kind in MAKERS}

        async def meet(kind: Kind) -> None:
            data = refusal(await hosts[kind].task("report", size=1), "store", 503)
            assert data["retryAfterMs"] > 0
            await hosts[kind].assert_usable()

        async def go_on(kind: Kind) -> None:
            task = (await hosts[kind].task("report", size=1))["task"]
            assert (await hosts[kind].outcome(task))["text"] == "x"

        with closing(sqlite3.connect(stage.store, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await all_play(meet, MAKERS)
        await all_play(go_on, MAKERS)


async def test_a_host_that_connects_too_often_hears_why(stage: Stage) -> None:
    """But for one that asks which revisions are served, and takes any refusal for an answer to that."""

    async def play(kind: Kind) -> None:
        async with stage.connected(kind, "greetings"):
            told = await stage.connect(kind, "greetings")
        said = told["gone"] if "gone" in told else told["thrown"][1]
        assert ("Rate limit greetings exceeded" in said) is (kind.name != "client-stateless"), said
        await asyncio.sleep(LONGEST / 1000)
        async with stage.connected(kind, "greetings") as host:
            await host.assert_usable()

    await all_play(play, tuple(kind for kind in KINDS if kind.name != "python-2"))


async def test_hosts_work_without_a_stream_of_their_own_and_one_more_takes_the_place_of_an_idle_one(
    stage: Stage,
) -> None:
    async def play(kind: Kind) -> None:
        async with AsyncExitStack() as running:
            come = [await running.enter_async_context(stage.connected(kind, "many")) for _ in range(SESSIONS)]
            for host in come:
                await host.assert_usable()
            more = await running.enter_async_context(stage.connected(kind, "many"))
            await more.assert_usable()

    await all_play(play)


async def test_a_call_with_a_key_that_is_made_again_runs_once_whichever_sdk_makes_it(stage: Stage) -> None:
    """Every SDK lets its users add to `_meta`."""

    async def play(kind: Kind) -> None:
        async with stage.connected(kind, "key") as host:
            key = f"{kind.name} key"
            meta = {"io.taskgate/idempotency-key": key}
            if kind.makes_tasks:
                tasks = [(await host.task("hold", meta, key=key))["task"] for _ in range(2)]
                assert tasks[0] == tasks[1]
                other = await host.task("hold", meta, key="other")
                assert other["error"]["code"] == -32602
                await stage.ask(kind, "let_go", key)
            else:
                joined = [asyncio.create_task(host.call("hold", meta, key=key)) for _ in range(2)]
                await stage.ask(kind, "began", key)
                await host.assert_usable()
                await stage.ask(kind, "let_go", key)
                assert [(await each)["text"] for each in joined] == [f"held {key}"] * 2
            assert await stage.ask(kind, "runs", key) == "1"

    await all_play(play)


@pytest.mark.parametrize("way", WAYS)
async def test_a_host_gets_to_know_what_the_table_says_and_goes_on_unless_its_sdk_gives_up(
    stage: Stage, way: str
) -> None:
    """Whoever has lost its connection finds the gateway as ready for another one. None repeats what was refused."""
    gateway = way if way in stage.gateways else "jsonrpc"
    already = await stage.refused(gateway)

    async def play(kind: Kind) -> None:
        scene = "calls" if way in stage.gateways else way
        mount = f"door-{kind.era}" if way == "door" else ""
        tool = "privileged" if way == "scopes" else "echo"
        async with stage.connected(kind, scene, way=gateway, mount=mount) as host:
            told = await until_refused(lambda: host.call(tool, **({"word": "one"} if tool == "echo" else {})))
            assert word_for(told) == expected(kind, way), told
            await asyncio.sleep(LONGEST / 1000)
            if word_for(told) != ENDS:
                return await host.assert_usable()
            assert "gone" in await host.call("echo", word="again")
        async with stage.connected(kind, "afterwards", way=gateway) as host:
            return await host.assert_usable()

    await all_play(play)
    assert await stage.refused(gateway) - already == (len(KINDS) if way in stage.gateways else 0)


async def test_hosts_that_are_connected_meet_the_new_limits_of_a_file_that_is_read_again(stage: Stage) -> None:
    """A file that is wrong changes nothing for them."""
    gateway, file = stage.gateways["jsonrpc"], stage.store.with_name("taskgate.yaml")
    before = file.read_text()

    async def read_again(text: str, event: str) -> None:
        already = len([line for line in gateway.log_lines() if line["event"] == event])
        file.write_text(text)
        gateway.ask(SIGHUP)
        await eventually(lambda: len([line for line in gateway.log_lines() if line["event"] == event]) > already)

    async with AsyncExitStack() as running:
        hosts = {kind: await running.enter_async_context(stage.connected(kind, "later")) for kind in KINDS}

        async def pass_(kind: Kind) -> None:
            for _ in range(3):
                await hosts[kind].assert_usable()

        async def meet(kind: Kind) -> None:
            host = hosts[kind]
            await wait_as_told(refusal(await until_refused(lambda: host.call("echo", word="one")), "rate"))
            await host.assert_usable()

        await all_play(pass_)
        await read_again(before + "nonsense: true\n", "configuration not reloaded")
        await all_play(pass_)
        await read_again(before.replace('"scene": ["calls"]', '"scene": ["calls", "later"]'), "configuration reloaded")
        await all_play(meet)
        await read_again(before, "configuration reloaded")
        await all_play(pass_)
