"""A program that says more on one line than is kept, behind the whole gateway: that costs one call, not the others."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.waiting import bounded
from interaction.programs import who, with_program
from requirements import covers

LIMIT = 64 * 1024
TOO_LARGE = "The server's answer is too large"
SOMEBODYS = "The server sent an answer that is too large, and its request is unknown"
ENDLESS = "The server's program was stopped because it wrote a message that is too large"


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    """A gateway that keeps little of an answer, and starts what failed again after an hour."""
    kept, never = {"tasks": {"max_result": "64KiB"}}, {"backoff": "1h", "max_backoff": "1h"}
    async with serve(with_program(sections=kept, restart=never)) as gateway:
        yield gateway


@pytest.fixture
async def host(gateway: Gateway) -> Host:
    return await gateway.greeted()


async def holding(host: Host) -> str:
    """A task that the program works at."""
    task: str = (await host.start("hold"))["taskId"]
    await who(host)
    return task


async def failed(host: Host, way: str, size: int = 2 * LIMIT) -> tuple[str, str]:
    """Why and how a call failed that is answered with too much."""
    error: dict[str, Any] = (await host.call("big", {"way": way, "size": size})).error
    assert (error["code"], error["data"]["dispatched"]) == (-32603, True)
    return error["data"]["reason"], error["message"]


@covers("U-STDIO-1")
@pytest.mark.parametrize("way", ["id first", "id last"])
async def test_an_answer_that_is_too_large_fails_its_call_alone(host: Host, way: str) -> None:
    task, before = await holding(host), await who(host)
    for _ in range(3):
        assert await failed(host, way) == ("too_large", TOO_LARGE)
    assert (await host.task(task))["status"] == "working"
    assert (await host.call("release")).result["structuredContent"] == {"released": 1}
    await host.until(task, "completed")
    assert (await who(host))["pid"] == before["pid"]


async def test_one_of_which_it_cannot_be_told_whose_it_is_is_that_of_the_only_call(host: Host) -> None:
    before = await who(host)
    assert await failed(host, "id between") == ("too_large", TOO_LARGE)
    assert (await who(host))["pid"] == before["pid"]


async def test_one_of_which_it_cannot_be_told_whose_it_is_fails_all_calls_and_says_so(host: Host) -> None:
    task, before = await holding(host), await who(host)
    assert await failed(host, "id between") == ("too_large", SOMEBODYS)
    assert (await host.until(task, "failed"))["statusMessage"] == SOMEBODYS
    assert (await who(host))["pid"] == before["pid"]


@pytest.mark.parametrize("way", ["question", "junk"])
async def test_what_is_no_answer_and_too_large_fails_no_call(host: Host, way: str) -> None:
    task = await holding(host)
    answer = await host.call("big", {"way": way, "size": 2 * LIMIT})
    assert answer.result["structuredContent"] == {"way": way}
    if way == "question":
        async with bounded():
            while not (told := (await who(host))["told"]):
                pass
        assert told == [{"code": -32603, "message": "The request is too large"}]
    assert (await host.task(task))["status"] == "working"


async def test_one_without_end_ends_the_process_and_the_next_one_is_started_at_once(host: Host) -> None:
    task, before = await holding(host), await who(host)
    assert await failed(host, "id first", 17 * LIMIT) == ("too_large", TOO_LARGE)
    error = (await host.ask("tasks/result", {"taskId": task})).error
    assert (error["message"], error["data"]["reason"]) == (ENDLESS, "closed")
    assert (await who(host))["pid"] != before["pid"]
