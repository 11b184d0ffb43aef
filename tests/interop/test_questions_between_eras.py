"""What a server asks reaches hosts of the other era: in rounds, as a task's inputs, or in the middle of the call.

The servers know nothing of tasks. A host is one process, which makes one call after the other; what it has told of
them all is asked for by one test each.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from interop.hosts import assert_log_is_discreet
from interop.peers import HOSTS, MODERN_HOSTS, Call, Told, python_server, require_peers, told_by

# One gateway for all: its output is read by the loop that started it.
pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

ELICITATION, SAMPLING, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
Asked = tuple[dict[str, Any], str, list[str]]

BLOCKING: dict[str, Asked] = {
    "ask": ({"rounds": 3}, "WORD-1 WORD-2 WORD-3", [ELICITATION] * 3),
    "where": ({}, "file:///srv/books", [ROOTS]),
    "muse": ({"subject": "the sea"}, "thought: the sea", [SAMPLING]),
    "both": ({}, "WORD-BOTH thought: both", [ELICITATION, SAMPLING]),
    "think": ({"city": "Oslo"}, "thought: rain in Oslo", [SAMPLING] * 2),
    "ask_url": ({}, "accept", [ELICITATION]),
}
"""By tool of a server that asks in the middle of a call: arguments, result, and what it asks, in any order."""

ASKING: dict[str, Asked] = {
    "ask": ({"rounds": 3}, "WORD-1 WORD-2 WORD-3", [ELICITATION] * 3),
    "everybody": ({}, "WORD-EVERYBODY thought: everybody file:///srv/books", [ELICITATION, ROOTS, SAMPLING]),
}
"""The same of a server that asks before it answers."""

RELEASES = {"1.8.1": ("where", "muse"), "1.12.4": ("ask", "where", "muse", "both"), "1.23.3": tuple(BLOCKING)}
ASKING_RELEASE = "2.3.0"
STEPS: Call = ("steps", {"count": 3})
PLAINLY = "--plainly"
LEGACY_WAYS = [(host, way) for host in HOSTS for way in ("task", "plain call")]
Conversations = dict[tuple[str, str], dict[str, Told]]


def calls_to(release: str) -> list[Call]:
    """What is called at a server on that release."""
    if release == ASKING_RELEASE:
        return [(tool, asked[0]) for tool, asked in ASKING.items()]
    return [*((tool, BLOCKING[tool][0]) for tool in RELEASES[release]), STEPS]


async def told_of(host: str, url: str, release: str, *options: str) -> dict[str, Told]:
    """What that host tells of every call, by tool."""
    calls = calls_to(release)
    told = await told_by(host, url, calls, *options)
    return {tool: each for (tool, _), each in zip(calls, told, strict=False)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def conversations(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Conversations]:
    """What hosts of one era tell of servers of the other: by host, with its way of calling, and release."""
    releases = (*RELEASES, ASKING_RELEASE)
    require_peers(*(f"mcp-{release}" for release in releases), "fastmcp-3.4.10")
    folder = tmp_path_factory.mktemp("eras")
    log = folder / "gateway.log"
    async with AsyncExitStack() as running:
        urls = await servers(running, folder)
        gateway = await running.enter_async_context(gateway_process(["--config", configured(urls, folder)], log=log))
        asking = place(gateway.listen, ASKING_RELEASE)
        told = {(f"{host} task", ASKING_RELEASE): told_of(host, asking, ASKING_RELEASE) for host in HOSTS}
        told |= {
            (f"{host} plain call", ASKING_RELEASE): told_of(host, asking, ASKING_RELEASE, PLAINLY) for host in HOSTS
        }
        told |= {
            (host, release): told_of(host, place(gateway.listen, release), release)
            for host in MODERN_HOSTS
            for release in RELEASES
        }
        yield dict(zip(told, await asyncio.gather(*told.values()), strict=True))
    for url in urls.values():
        assert_log_is_discreet(log, url)
    assert [word for word in ("WORD-", "thought:", "Oslo", "/srv/books", "step 1") if word in log.read_text()] == []


async def servers(running: AsyncExitStack, folder: Path) -> dict[str, str]:
    """The servers' URLs, by release."""
    scripts = dict.fromkeys(RELEASES, "questions_server.py") | {ASKING_RELEASE: "modern_questions_server.py"}
    return {
        release: await running.enter_async_context(python_server(script, release, folder))
        for release, script in scripts.items()
    }


def named(release: str) -> str:
    return release.replace(".", "-")


def place(listen: str, release: str) -> str:
    """Where the gateway shows the server on that release."""
    return f"http://{listen}/{named(release)}/mcp"


OFTEN = "poll_interval: {base: 100ms, min: 100ms, adaptive: false}"


def configured(urls: dict[str, str], folder: Path) -> Path:
    """A file with a mount for each server. Without authentication all hosts are one caller."""
    written = {named(release): {"path": f"/{named(release)}/mcp", "url": url} for release, url in urls.items()}
    # It is of both eras, and has its questions in the modern one alone.
    written[named(ASKING_RELEASE)]["protocol_version"] = "2026-07-28"
    return write_configuration(
        folder,
        "",
        upstreams=written,
        tasks=f"{{{OFTEN}, inline_grace: 300ms, input_required: {{max_outstanding: 64}}}}",
        limits={"rate": [], "concurrency": {"tasks_per_context": 200}},
        logging={"level": "debug"},
    )


def assert_answered(told: Told, asked: Asked) -> None:
    """That the tool was given its answers, each question once."""
    _, result, questions = asked
    assert (told.get("result"), told.get("error")) == (result, None), told
    assert not told["isError"]
    assert sorted(told["questions"]) == questions, told
    assert told.get("problems", []) == []


@pytest.mark.parametrize(("release", "tool"), [(release, tool) for release in RELEASES for tool in RELEASES[release]])
@pytest.mark.parametrize("host", MODERN_HOSTS)
async def test_what_a_server_asks_in_the_middle_of_a_call_is_answered_by_a_modern_host(
    conversations: Conversations, host: str, release: str, tool: str
) -> None:
    assert_answered(conversations[host, release][tool], BLOCKING[tool])


@pytest.mark.parametrize("tool", ASKING)
@pytest.mark.parametrize(("host", "way"), LEGACY_WAYS)
async def test_what_a_server_asks_before_it_answers_is_answered_by_a_host_that_is_asked_in_the_middle(
    conversations: Conversations, host: str, way: str, tool: str
) -> None:
    told = conversations[f"{host} {way}", ASKING_RELEASE][tool]
    assert_answered(told, ASKING[tool])
    if way == "task":
        assert told["statuses"][0] == "working"
        assert told["statuses"][-1] in {"completed", "input_required"}, "a host that waits for the result polls no more"


@pytest.mark.parametrize("release", RELEASES)
async def test_a_question_of_a_task_is_an_input_of_it_to_a_modern_host(
    conversations: Conversations, release: str
) -> None:
    for tool in RELEASES[release]:
        statuses = conversations["stateless-ext-tasks", release][tool]["statuses"]
        assert (statuses[0], statuses[-1]) == ("working", "completed")
        assert "input_required" in statuses, statuses
        assert set(statuses[1:-1]) <= {"working", "input_required"}, statuses


@pytest.mark.parametrize("release", RELEASES)
async def test_progress_and_log_messages_reach_a_modern_host_on_the_stream_of_its_call(
    conversations: Conversations, release: str
) -> None:
    told = conversations["modern-python", release]["steps"]
    assert told["result"] == "3 steps"
    assert told["progress"] == [1, 2, 3], told
    assert told["logs"] == ["step 1", "step 2", "step 3"], told
