"""A catalogue is read within its bounds, and refused as a whole beyond them, whoever asks for it."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from helpers.counted_calls import counted_calls
from helpers.manual_clock import ManualClock
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.discovery import CatalogueBounds, ListedTool, ToolList, ToolPage
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Response
from taskgate.upstream.descriptions import LEAST_AGE, Catalogue, read_catalogue, what_is_left
from taskgate.upstream.failures import too_large

DIALECT = LegacyUpstream("1", ExtensionPolicy())


def page(first: int, count: int, cursor: str | None = None, **more: Any) -> Response:
    result = {"tools": [{"name": f"tool-{number}", **more} for number in range(first, first + count)]}
    text = dump({"jsonrpc": "2.0", "id": 1, "result": result | ({} if cursor is None else {"nextCursor": cursor})})
    read = parse(text.encode(), max_depth=64)
    assert isinstance(read, Response)
    return read


def listed(*tools: str, ttl: float = 0.0) -> ToolList:
    return ToolList({tool: ListedTool() for tool in tools}, ttl)


def catalogue_of(
    make: Callable[[], Coroutine[Any, Any, ToolList]],
    clock: ManualClock,
    *,
    age: timedelta | None,
    read: Callable[[Response], ToolPage] = DIALECT.read_tools,
) -> Catalogue:
    """A catalogue of the legacy era that takes fifty tools."""
    return Catalogue(make, clock, age=age, read=read, bounds=CatalogueBounds(50, 10**6))


async def answer(response: Response) -> Response:
    """The answer to a list that a host asked for."""
    return response


class Server:
    """Has a page for each cursor."""

    def __init__(self, *pages: Response) -> None:
        self.pages = list(pages)
        self.asked: list[RawJson | None] = []

    async def ask(self, cursor: RawJson | None) -> Response:
        self.asked.append(cursor)
        return self.pages[len(self.asked) - 1]


def never() -> None:
    raise AssertionError("the list is complete")


BEYOND = {
    "one page with too many tools": ([page(0, 6)], CatalogueBounds(5, 10**6), 1),
    "one page that is too long": ([page(0, 1, description="é" * 500)], CatalogueBounds(5, 1000), 1),
    "pages that have too many together": (
        [page(0, 3, "1"), page(3, 3, "2"), page(6, 1)],
        CatalogueBounds(5, 10**6),
        2,
    ),
    "the same tool on every page": ([page(0, 3, "1"), page(0, 3)], CatalogueBounds(5, 10**6), 2),
    "pages that are too long together": (
        [page(0, 1, "1", description="x" * 600), page(1, 1, description="x" * 600)],
        CatalogueBounds(5, 1000),
        2,
    ),
}


@pytest.mark.parametrize(("pages", "bounds", "asked"), BEYOND.values(), ids=BEYOND)
async def test_a_catalogue_beyond_a_bound_is_refused_after_the_page_that_passed_it(
    pages: list[Response], bounds: CatalogueBounds, asked: int
) -> None:
    server = Server(*pages)
    with pytest.raises(UpstreamFailed, match=r"limits\.catalogue") as failed:
        await read_catalogue(server.ask, DIALECT.read_tools, bounds, never)
    assert (failed.value.reason, len(server.asked)) == ("too_large", asked)


@pytest.mark.parametrize("description", ["", "x" * 300_000])
async def test_a_catalogue_of_exactly_its_bounds_is_read(description: str) -> None:
    pages = [page(0, 3, "1", description=description), page(3, 2)]
    bounds = CatalogueBounds(5, sum(len(one.text) for one in pages))
    found = await read_catalogue(Server(*pages).ask, DIALECT.read_tools, bounds, never)
    assert list(found.tools) == [f"tool-{number}" for number in range(5)]


ENDLESS = {
    "the same page for the cursor that it names": ([page(0, 2, ""), page(0, 2, "")], 2, 2),
    "the same cursor on a page with other tools": ([page(0, 2, "a"), page(2, 2, "a")], 4, 2),
    "another cursor on the same page": ([page(0, 2, "a"), page(0, 2, "b")], 2, 2),
    "pages without tools": ([page(0, 2, "a"), *(page(0, 0, f"{number}") for number in range(20))], 2, 17),
}


@pytest.mark.parametrize(("pages", "tools", "asked"), ENDLESS.values(), ids=ENDLESS)
async def test_a_list_whose_pages_repeat_is_what_was_read(pages: list[Response], tools: int, asked: int) -> None:
    server, cuts = Server(*pages), []
    found = await read_catalogue(server.ask, DIALECT.read_tools, CatalogueBounds(50, 10**6), lambda: cuts.append(1))
    assert (len(found.tools), len(server.asked), cuts) == (tools, asked, [1])


async def test_a_page_without_tools_does_not_end_the_list() -> None:
    pages = [page(0, 2, ""), page(2, 0, "b"), page(2, 2)]
    found = await read_catalogue(Server(*pages).ask, DIALECT.read_tools, CatalogueBounds(50, 10**6), never)
    assert len(found.tools) == 4


def calls_for(tools: int) -> int:
    """Functions that are entered until a page with so many tools is refused; the least of several times."""
    counts = []
    for _ in range(5):
        read = page(0, tools)
        with pytest.raises(UpstreamFailed), counted_calls() as calls:
            what_is_left(CatalogueBounds(5, 10**9), read)
        counts.append(calls.count)
    return min(counts)


def test_to_find_a_page_beyond_the_bounds_costs_the_same_for_every_number_of_tools() -> None:
    assert calls_for(10_000) == calls_for(20_000)


def one_failure(read: asyncio.Event, *lists: ToolList | None) -> Callable[[], Coroutine[Any, Any, ToolList]]:
    """Gives one list after another; None fails once that is read."""
    left = iter(lists)

    async def make() -> ToolList:
        found = next(left)
        if found is None:
            await read.wait()
            raise too_large()
        return found

    return make


async def test_a_list_that_was_forgotten_while_it_was_read_again_is_not_kept() -> None:
    """Otherwise a failure would bring back tools of which the server has said that they changed."""
    read = asyncio.Event()
    catalogue = catalogue_of(one_failure(read, listed("echo"), None, listed("new")), ManualClock(), age=None)
    assert set(await catalogue.with_tool("echo")) == {"echo"}
    again = asyncio.create_task(catalogue.with_tool("other"))
    await asyncio.sleep(0)
    catalogue.forget()
    read.set()
    with pytest.raises(UpstreamFailed):
        await again
    assert catalogue.is_empty
    assert set(await catalogue.with_tool("other")) == {"new"}
    await catalogue.close()


async def test_while_a_list_is_read_for_another_tool_the_known_ones_are_there() -> None:
    read = asyncio.Event()
    catalogue = catalogue_of(one_failure(read, listed("echo"), None), ManualClock(), age=None)
    await catalogue.with_tool("echo")
    again = asyncio.create_task(catalogue.with_tool("other"))
    await asyncio.sleep(0)
    async with bounded():
        assert set(await catalogue.with_tool("echo")) == set(await catalogue.with_tool()) == {"echo"}
    read.set()
    with pytest.raises(UpstreamFailed):
        await again
    assert set(await catalogue.with_tool("echo")) == {"echo"}
    await catalogue.close()


class Read:
    """Gives one list after another; a failure is raised."""

    def __init__(self, *lists: ToolList | Exception) -> None:
        self.lists = list(lists)
        self.count = 0

    async def __call__(self) -> ToolList:
        self.count += 1
        found = self.lists.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


async def tools_of(catalogue: Catalogue) -> set[str]:
    """The tools that a call gets now, once what runs in the background has ended."""
    await catalogue.with_tool()
    for _ in range(5):
        await asyncio.sleep(0)
    return set(await catalogue.with_tool())


AGE = timedelta(minutes=5)
LONGER = AGE + timedelta(seconds=1)
RENEWED = {
    "a list that does not say how long it may be cached": (0.0, 300),
    "a list that may be cached for less time": (90.0, 90),
    "a list that may be cached for longer": (3600.0, 3600),
    "a list that may be cached for a moment": (0.001, LEAST_AGE),
}


@pytest.mark.parametrize(("ttl", "age"), RENEWED.values(), ids=RENEWED)
async def test_an_old_list_is_used_once_more_and_read_again_in_the_background(ttl: float, age: float) -> None:
    clock, read = ManualClock(), Read(listed("old", ttl=ttl), listed("new", ttl=ttl))
    catalogue = catalogue_of(read, clock, age=AGE)
    await catalogue.with_tool()
    clock.advance(timedelta(seconds=age - 0.5))
    assert await tools_of(catalogue) == {"old"}
    clock.advance(timedelta(seconds=1))
    assert set(await catalogue.with_tool()) == {"old"}
    assert await tools_of(catalogue) == {"new"}
    assert read.count == 2
    await catalogue.close()


async def test_a_list_that_a_host_got_has_an_age_too() -> None:
    clock, read = ManualClock(), Read(listed("new"))
    catalogue = catalogue_of(read, clock, age=AGE)
    await catalogue.relayed(None, answer(page(0, 1)))
    assert set(await catalogue.with_tool()) == {"tool-0"}
    clock.advance(LONGER)
    assert await tools_of(catalogue) == {"new"}
    await catalogue.close()


async def test_an_old_list_is_read_again_also_for_who_does_not_wait_for_it() -> None:
    """A task asks for its tool so, and its host may never ask otherwise."""
    clock, read = ManualClock(), Read(listed("old"), listed("new"))
    catalogue = catalogue_of(read, clock, age=AGE)
    await catalogue.with_tool()
    clock.advance(LONGER)
    assert catalogue.listed("old") is not None
    await eventually(lambda: catalogue.listed("old") is None and catalogue.listed("new") is not None)
    assert read.count == 2
    await catalogue.close()


async def test_while_a_list_is_read_for_another_tool_the_known_ones_are_listed() -> None:
    read = asyncio.Event()
    catalogue = catalogue_of(one_failure(read, listed("echo"), None), ManualClock(), age=None)
    await catalogue.with_tool("echo")
    again = asyncio.create_task(catalogue.with_tool("other"))
    await asyncio.sleep(0)
    assert (catalogue.listed("echo"), catalogue.listed("other")) == (ListedTool(), None)
    read.set()
    with pytest.raises(UpstreamFailed):
        await again
    await catalogue.close()


async def test_a_list_without_an_age_is_not_read_again() -> None:
    clock, read = ManualClock(), Read(listed("old", ttl=1.0))
    catalogue = catalogue_of(read, clock, age=None)
    await catalogue.with_tool()
    clock.advance(timedelta(days=10))
    assert await tools_of(catalogue) == {"old"}
    await catalogue.close()


async def test_an_old_list_stays_in_use_while_it_cannot_be_read_again() -> None:
    clock, read = ManualClock(), Read(listed("old"), too_large(), too_large(), listed("new"))
    catalogue = catalogue_of(read, clock, age=AGE)
    await catalogue.with_tool()
    found = []
    for _ in range(3):
        clock.advance(LONGER)
        found.append(await tools_of(catalogue))
        # Not once for each call.
        found.append(await tools_of(catalogue))
    assert found == [{"old"}] * 4 + [{"new"}] * 2
    assert read.count == 4
    await catalogue.close()


async def test_a_list_that_was_forgotten_while_it_was_renewed_does_not_come_back() -> None:
    gate, clock, lists = asyncio.Event(), ManualClock(), iter([listed("old"), listed("between"), listed("new")])

    async def make() -> ToolList:
        found = next(lists)
        if "between" in found.tools:
            await gate.wait()
        return found

    catalogue = catalogue_of(make, clock, age=AGE)
    await catalogue.with_tool()
    clock.advance(LONGER)
    await catalogue.with_tool()
    catalogue.forget()
    gate.set()
    assert await tools_of(catalogue) == {"new"}
    await catalogue.close()


async def test_the_end_of_a_session_ends_the_reading_in_the_background() -> None:
    clock, lists = ManualClock(), iter([listed("old")])

    async def make() -> ToolList:
        for found in lists:
            return found
        return await asyncio.get_running_loop().create_future()

    catalogue = catalogue_of(make, clock, age=AGE)
    await catalogue.with_tool()
    clock.advance(LONGER)
    await catalogue.with_tool()
    await catalogue.close()
    assert len(asyncio.all_tasks()) == 1


async def test_the_same_list_for_many_hosts_is_decoded_once() -> None:
    decoded: list[Response] = []

    def read(response: Response) -> ToolPage:
        decoded.append(response)
        return DIALECT.read_tools(response)

    catalogue = catalogue_of(Read(), ManualClock(), age=AGE, read=read)
    for response in (page(0, 1), page(0, 1), page(0, 2)):
        await catalogue.relayed(None, answer(response))
    assert len(decoded) == 2
    assert set(await catalogue.with_tool()) == {"tool-0", "tool-1"}
    await catalogue.close()


async def test_a_list_that_was_asked_for_before_the_server_said_that_it_changed_is_not_taken() -> None:
    catalogue = catalogue_of(Read(listed("new")), ManualClock(), age=None)

    async def changed_meanwhile() -> Response:
        catalogue.forget()
        return page(0, 1)

    await catalogue.relayed(None, changed_meanwhile())
    assert set(await catalogue.with_tool()) == {"new"}
    await catalogue.close()


async def test_a_host_that_lists_often_spares_the_server_the_reading_of_an_old_list() -> None:
    clock, read = ManualClock(), Read()
    catalogue = catalogue_of(read, clock, age=AGE)
    for _ in range(3):
        await catalogue.relayed(None, answer(page(0, 1)))
        clock.advance(AGE - timedelta(seconds=1))
        assert await tools_of(catalogue) == {"tool-0"}
    assert read.count == 0
    await catalogue.close()


async def test_known_tools_stay_known_though_two_readings_for_others_fail() -> None:
    clock = ManualClock()
    catalogue = catalogue_of(Read(listed("echo"), too_large(), too_large()), clock, age=None)
    await catalogue.with_tool("echo")

    async def again() -> None:
        with pytest.raises(UpstreamFailed):
            await catalogue.with_tool("other")

    # The second begins before the first one's waiter has heard of its end.
    first = asyncio.create_task(again())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    clock.advance(timedelta(minutes=1))
    await asyncio.gather(first, again())
    assert catalogue.listed("echo") is not None
    await catalogue.close()
