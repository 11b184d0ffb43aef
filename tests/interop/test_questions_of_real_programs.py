"""The protocol's reference server as a program, and over HTTP+SSE: what it asks in the middle of a call reaches hosts
that make a task of that, and so does how far it is; its own tasks are a host's tasks, and calls to a host without them.

A host is one process with one session, which makes one call after the other; what it has told of them all is asked for
by one test each.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from helpers.left_behind import left_behind
from interop.hosts import OFFICIAL, official_host, text_of
from interop.peers import HOSTS, Call, Told, require_peers, told_by
from interop.programs import upstreams
from interop.released import HTTP, SSE, STDIO

# One server and one gateway for all calls: their output is read by the loop that started them.
pytestmark = [*OFFICIAL, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

ELICITATION, SAMPLING = "elicitation/create", "sampling/createMessage"
TASKS, PLAINLY = "tasks", "plainly"

QUESTIONS: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "trigger-elicitation-request": ({}, ["User provided the requested information"], [ELICITATION]),
    "trigger-sampling-request": ({"prompt": "the sea"}, ["parrot", "thought: ", "the sea"], [SAMPLING]),
    "simulate-research-query": (
        {"topic": "the sea", "ambiguous": True},
        ["# Research Report: the sea", "Clarification"],
        [ELICITATION],
    ),
}
"""By tool: its arguments, what is in its result, and what it asks. The last insists on being a task of the server's."""
STEPS = "trigger-long-running-operation"

CALLS: list[Call] = [(tool, given) for tool, (given, _, _) in QUESTIONS.items()] + [
    (STEPS, {"duration": 0.8, "steps": 4})
]
WITHOUT_TASKS = "modern-python"
SOME = (("python", TASKS), ("stateless-ext-tasks", TASKS), ("sdk", PLAINLY))
ALL = (
    *((host, TASKS) for host in (*HOSTS, "stateless-ext-tasks")),
    *((host, PLAINLY) for host in ("python", "sdk", WITHOUT_TASKS)),
)
ASKED = [(over, *each) for over, hosts in {STDIO: ALL, SSE: SOME, HTTP: SOME}.items() for each in hosts]
UNTOLD = (WITHOUT_TASKS, "stateless-ext-tasks")
"""To these no progress is told of the calls that they make here."""

Asked = tuple[str, str, str]


def mount_of(asked: Asked) -> str:
    """Each has a program of its own: all are one caller, and what is asked while two calls run is nobody's."""
    return "-".join(asked)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def serving(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a gateway before the server, over each of them."""
    require_peers("fastmcp-3.4.10", "mcp-2.3.0")
    folder = tmp_path_factory.mktemp("asking")
    mounts = {mount_of(each): ("everything-2026-08", each[0]) for each in ASKED}
    async with (
        upstreams(mounts, folder) as written,
        gateway_process(["--config", configured(written, folder)], log=folder / "gateway.log") as gateway,
    ):
        yield gateway.listen
    assert left_behind(folder) == []


def configured(written: dict[str, Any], folder: Path) -> Path:
    """Calls of hosts that can have tasks become tasks at once."""
    tasks = {
        "upgrade": [{"tool": "*", "mode": "always"}],
        "poll_interval": {"base": "100ms", "min": "100ms", "adaptive": False},
    }
    sections = {"upstreams": json.dumps(written), "tasks": json.dumps(tasks), "logging": "{level: debug}"}
    return write_configuration(folder, "", **sections)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def conversations(serving: str) -> dict[Asked, list[Told]]:
    """What all of them have told."""

    async def all_told(each: Asked) -> list[Told]:
        _, host, how = each
        options = ["--plainly"] if how == PLAINLY and host != WITHOUT_TASKS else []
        return await told_by(host, f"http://{serving}/{mount_of(each)}/mcp", CALLS, *options)

    return dict(zip(ASKED, await asyncio.gather(*map(all_told, ASKED)), strict=True))


def told_of(conversations: dict[Asked, list[Told]], asked: Asked, tool: str) -> Told:
    told = {name: each for (name, _), each in zip(CALLS, conversations[asked], strict=False)}
    assert tool in told, f"an earlier call did not end: {conversations[asked][-1]}"
    return told[tool]


@pytest.mark.parametrize("tool", QUESTIONS)
@pytest.mark.parametrize("asked", ASKED, ids=map(mount_of, ASKED))
async def test_what_a_tool_asks_is_answered_by_the_host_that_called_it(
    conversations: dict[Asked, list[Told]], asked: Asked, tool: str
) -> None:
    told = told_of(conversations, asked, tool)
    _, result, questions = QUESTIONS[tool]
    assert not told["isError"], told
    assert [words for words in result if words not in told["result"]] == [], told["result"]
    # It asks for the roots too, when it thinks of that.
    assert [each for each in told["questions"] if each != "roots/list"] == questions


@pytest.mark.parametrize("asked", ASKED, ids=map(mount_of, ASKED))
async def test_how_far_a_tool_is_reaches_the_host(conversations: dict[Asked, list[Told]], asked: Asked) -> None:
    told = told_of(conversations, asked, STEPS)
    assert told["result"] == "Long running operation completed. Duration: 0.8 seconds, Steps: 4."
    assert asked[1] in UNTOLD or told["progress"] == [1, 2, 3, 4]


@pytest.mark.parametrize("tool", [STEPS, "simulate-research-query"])
@pytest.mark.parametrize("over", [STDIO, SSE, HTTP])
async def test_a_call_that_takes_long_can_be_cancelled_and_the_next_one_works(
    serving: str, over: str, tool: str
) -> None:
    async with official_host(f"http://{serving}/{mount_of((over, 'python', TASKS))}/mcp") as host:
        task = await host.start(tool, topic="the sea", duration=30, steps=3)
        assert (await host.session.experimental.cancel_task(task)).status == "cancelled"
        again = await host.start("get-sum", a=19, b=23)
        assert (await host.end_of(again)).status == "completed"
        assert text_of(await host.result_of(again)) == "The sum of 19 and 23 is 42."
