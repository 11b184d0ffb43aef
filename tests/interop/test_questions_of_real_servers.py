"""What unmodified servers ask in the middle of a tool reaches unmodified hosts, also where the call became a task.

The servers know nothing of tasks; the hosts are all those that make tasks of their calls. A host is one process with
one session, which makes one call after the other; what it has told of them all is asked for by one test each.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from interop.hosts import place_for
from interop.peers import HOSTS, Call, Told, python_server, require_peers, told_by

# One server and one gateway for all calls of a release: their output is read by the loop that started them.
pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module")]

ELICITATION, SAMPLING, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"

QUESTIONS: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "ask": ({"rounds": 3}, "WORD-1 WORD-2 WORD-3", [ELICITATION] * 3),
    "where": ({}, "file:///srv/books", [ROOTS]),
    "muse": ({"subject": "the sea"}, "thought: the sea", [SAMPLING]),
    "both": ({}, "WORD-BOTH thought: both", [ELICITATION, SAMPLING]),
    "think": ({"city": "Oslo"}, "thought: rain in Oslo", [SAMPLING] * 2),
    "ask_url": ({}, "accept", [ELICITATION]),
}
"""By tool: its arguments, its result, and what it asks, in any order."""

TOOLS = {"1.8.1": ("where", "muse"), "1.12.4": ("ask", "where", "muse", "both"), "1.23.3": tuple(QUESTIONS)}
"""By release, the newest last: the tools that ask. These speak 2024-11-05, 2025-06-18 and 2025-11-25."""

TOGETHER: list[Call] = [("ask", {"about": "red"}), ("ask", {"about": "blue"}), ("both", {})]
ANSWERED_TOGETHER = ["WORD-RED1 WORD-RED2", "WORD-BLUE1 WORD-BLUE2", "WORD-BOTH thought: both"]

PLAINLY = "--plainly"
DIRECTLY = "directly"
RELEASED = [(release, tool) for release, tools in TOOLS.items() for tool in tools]


class Conversations:
    """What the hosts have told through one gateway, all of them asked at once and once only."""

    def __init__(self, url: str, tools: tuple[str, ...]) -> None:
        self._url = url
        self._calls = [(tool, QUESTIONS[tool][0]) for tool in tools] + [("steps", {"count": 3})]
        self._told: dict[tuple[str, ...], dict[str, list[Told] | BaseException]] = {}

    async def told(self, host: str, tool: str, *options: str) -> Told:
        """What that host has told of that tool; AssertionError where it has told nothing."""
        told = await self._all_told(host, self._calls, *options)
        named = {name: each for (name, _), each in zip(self._calls, told, strict=False)}
        assert tool in named, f"an earlier call did not end: {told[-1]}"
        return named[tool]

    async def told_together(self, host: str) -> list[Told]:
        """What that host has told of three tasks that ran at once, in the order of TOGETHER."""
        return await self._all_told(host, TOGETHER, "--together")

    async def _all_told(self, host: str, calls: list[Call], *options: str) -> list[Told]:
        if options not in self._told:
            asked = (told_by(each, self._url, calls, *options) for each in HOSTS)
            answers = await asyncio.gather(*asked, return_exceptions=True)
            self._told[options] = dict(zip(HOSTS, answers, strict=True))
        told = self._told[options][host]
        if isinstance(told, BaseException):
            raise told
        return told


@asynccontextmanager
async def conversations_with(release: str, folder: Path) -> AsyncIterator[tuple[Conversations, Conversations]]:
    """With a server on that release: directly, and through a gateway, whose log is then searched for what was said."""
    require_peers(f"mcp-{release}", "fastmcp-3.4.10")
    async with python_server("questions_server.py", release, folder) as upstream:
        place = place_for(upstream, folder)
        async with place.gateway() as gateway:
            yield Conversations(upstream, TOOLS[release]), Conversations(place.url, TOOLS[release])
        logged = gateway.log.read_text()
    assert [said for said in ("WORD-", "thought:", "Oslo", "/srv/books", "sign-in", "step 1") if said in logged] == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def conversations(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Conversations]]:
    """Through a gateway, by release; and without one, on the newest."""
    found: dict[str, Conversations] = {}
    async with AsyncExitStack() as running:
        for release in TOOLS:
            place = tmp_path_factory.mktemp(release)
            found[DIRECTLY], found[release] = await running.enter_async_context(conversations_with(release, place))
        yield found


def assert_answered(told: Told, tool: str) -> None:
    """That the tool was given its answers, each question once."""
    _, result, questions = QUESTIONS[tool]
    assert (told.get("result"), told.get("error")) == (result, None), told
    assert not told["isError"]
    assert sorted(told["questions"]) == questions, told
    assert told.get("problems", []) == []


def assert_was_a_task(told: Told) -> None:
    """That it began working and was completed in the end, with nothing but input required between."""
    assert told["statuses"][0] == "working"
    assert told["statuses"][-1] in {"completed", "input_required"}, "a host that waits for the result polls no more"
    assert set(told["statuses"]) <= {"working", "input_required", "completed"}


@pytest.mark.parametrize(("release", "tool"), RELEASED)
@pytest.mark.parametrize("host", HOSTS)
async def test_what_a_server_asks_during_a_task_is_answered_by_the_host(
    conversations: dict[str, Conversations], host: str, release: str, tool: str
) -> None:
    told = await conversations[release].told(host, tool)
    assert_answered(told, tool)
    assert_was_a_task(told)


@pytest.mark.parametrize("release", ["1.12.4", "1.23.3"])
@pytest.mark.parametrize("host", HOSTS)
async def test_tasks_of_one_session_that_ask_at_once_get_their_own_answers(
    conversations: dict[str, Conversations], host: str, release: str
) -> None:
    told = await conversations[release].told_together(host)
    assert [each.get("result") for each in told] == ANSWERED_TOGETHER, told
    assert sorted(told[0]["questions"]) == [ELICITATION] * 5 + [SAMPLING]
    assert told[0].get("problems", []) == []


@pytest.mark.parametrize("tool", QUESTIONS)
@pytest.mark.parametrize("host", HOSTS)
async def test_what_a_server_asks_during_a_plain_call_is_answered_by_the_host(
    conversations: dict[str, Conversations], host: str, tool: str
) -> None:
    assert_answered(await conversations["1.23.3"].told(host, tool, PLAINLY), tool)


@pytest.mark.parametrize("host", HOSTS)
async def test_without_a_gateway_the_host_answers_the_same_questions(
    conversations: dict[str, Conversations], host: str
) -> None:
    for tool in QUESTIONS:
        assert_answered(await conversations[DIRECTLY].told(host, tool, PLAINLY), tool)
    told = await conversations[DIRECTLY].told(host, "steps", PLAINLY)
    assert (told["progress"], told["logs"]) == ([1, 2, 3], ["step 1", "step 2", "step 3"])


@pytest.mark.parametrize("options", [(), (PLAINLY,)], ids=["task", "plain call"])
@pytest.mark.parametrize("host", HOSTS)
async def test_the_news_that_a_page_was_dealt_with_reaches_the_host(
    conversations: dict[str, Conversations], host: str, options: tuple[str, ...]
) -> None:
    told = await conversations["1.23.3"].told(host, "ask_url", *options)
    assert told["notifications"].count("notifications/elicitation/complete") == 1, told


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("release", TOOLS)
async def test_progress_and_log_messages_of_a_task_reach_the_host(
    conversations: dict[str, Conversations], release: str, host: str
) -> None:
    told = await conversations[release].told(host, "steps")
    assert_was_a_task(told)
    assert told["result"] == "3 steps"
    assert told["progress"] == [1, 2, 3], told
    assert told["logs"] == ["step 1", "step 2", "step 3"], told


@pytest.mark.parametrize("host", HOSTS)
async def test_progress_and_log_messages_of_a_plain_call_reach_the_host(
    conversations: dict[str, Conversations], host: str
) -> None:
    told = await conversations["1.23.3"].told(host, "steps", PLAINLY)
    assert (told["progress"], told["logs"]) == ([1, 2, 3], ["step 1", "step 2", "step 3"])
