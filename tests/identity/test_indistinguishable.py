"""What is somebody else's, is gone or never was gets one answer: the same bytes."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Final

import pytest

from helpers.identity_provider import IdentityProvider
from helpers.loop_pace import pass_time
from identity.gateways import Stage, acquire, begin, ended_task, stage_of
from requirements import covers

ABOUT_TASKS: Final = ("tasks/get", "tasks/result", "tasks/cancel")
UNKNOWN_TASK: Final = "U" * 32
UNKNOWN_SESSION: Final = "U" * 32
MALFORMED: Final = {
    "empty": "",
    "short": "U" * 31,
    "long": "U" * 33,
    "very long": "U" * 100_000,
    "of another alphabet": "U" * 31 + "!",
    "with a line end": "U" * 31 + "\n",
    "a glob": "*",
    "a path": "../../../etc/passwd",
    "SQL": "' OR ''='",
    "a key of Redis": "{task}:" + "U" * 25,
    "NUL": "\0" * 32,
    "letters of no alphabet": "\N{FULLWIDTH LATIN CAPITAL LETTER U}" * 32,
    "a lone surrogate": "\ud800",
    "a number": 7,
    "true": True,
    "null": None,
    "a list": [UNKNOWN_TASK],
    "an object": {"taskId": UNKNOWN_TASK},
}
MINUTE: Final = timedelta(minutes=1)


@pytest.fixture
async def stage(provider: IdentityProvider) -> AsyncIterator[Stage]:
    async with stage_of(provider) as stage:
        yield stage


async def foreign_running(stage: Stage) -> str:
    return await begin(stage.bob)


async def foreign_ended(stage: Stage) -> str:
    return await ended_task(stage.bob)


async def foreign_cancelled(stage: Stage) -> str:
    task = await begin(stage.bob)
    await stage.bob.ask("tasks/cancel", {"taskId": task})
    return task


async def foreign_expired(stage: Stage) -> str:
    task = await ended_task(stage.bob)
    stage.clock.advance(MINUTE)
    return task


async def own_expired(stage: Stage) -> str:
    task = await ended_task(stage.alice)
    assert (await stage.alice.task(task))["status"] == "completed"
    stage.clock.advance(MINUTE)
    return task


async def own_expired_running(stage: Stage) -> str:
    task = await begin(stage.alice)
    stage.clock.advance(MINUTE)
    return task


async def own_purged(stage: Stage) -> str:
    task = await own_expired(stage)
    # What is over is removed every two seconds.
    await pass_time(5)
    return task


async def own_of_another_mount(stage: Stage) -> str:
    return await ended_task(stage.alice_at_orders)


async def own_session(stage: Stage) -> str:
    assert stage.alice.session is not None
    return stage.alice.session


TASKS: Final = [
    foreign_running,
    foreign_ended,
    foreign_cancelled,
    foreign_expired,
    own_expired,
    own_expired_running,
    own_purged,
    own_of_another_mount,
    own_session,
]


@covers("I-ISO-3", "I-ISO-6", "T12", "T13")
@pytest.mark.parametrize("method", ABOUT_TASKS)
@pytest.mark.parametrize("made", TASKS)
async def test_a_task_that_cannot_be_had_is_answered_like_one_that_never_was(
    stage: Stage, made: Callable[[Stage], Awaitable[str]], method: str
) -> None:
    task = await made(stage)
    assert await stage.about_task(method, task) == await stage.about_task(method, UNKNOWN_TASK)


async def test_an_unknown_task_is_not_found_and_that_is_all_that_is_said(stage: Stage) -> None:
    head, _, body = (await stage.about_task("tasks/get", UNKNOWN_TASK)).partition(b"\r\n\r\n")
    assert json.loads(body) == {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "Task not found"}}
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"Content-Type: application/json",
        b"Server: taskgate",
        f"Content-Length: {len(body)}".encode(),
        b"Connection: close",
    ]


@covers("I-ISO-3")
async def test_what_can_be_no_id_is_answered_like_an_unknown_one(stage: Stage) -> None:
    for method in ABOUT_TASKS:
        unknown = await stage.about_task(method, UNKNOWN_TASK)
        differing = [what for what, id in MALFORMED.items() if await stage.about_task(method, id) != unknown]
        assert differing == []


async def foreign_session(stage: Stage) -> str:
    assert stage.bob.session is not None
    return stage.bob.session


async def session_of_another_mount(stage: Stage) -> str:
    assert stage.alice_at_orders.session is not None
    return stage.alice_at_orders.session


async def session_that_was_left(stage: Stage) -> str:
    gone = await stage.gateway.greeted(token=stage.alices)
    assert gone.session is not None
    assert await gone.leave() == 200
    return gone.session


async def foreign_session_that_was_left(stage: Stage) -> str:
    gone = await stage.gateway.greeted(token=stage.bobs)
    assert gone.session is not None
    assert await gone.leave() == 200
    return gone.session


async def foreign_session_that_listens(stage: Stage) -> str:
    async with stage.bob.listen():
        return await foreign_session(stage)


def sent_as(text: str) -> Callable[[Stage], Awaitable[str]]:
    async def session(_: Stage) -> str:
        return text

    return session


SESSIONS: Final = {
    "foreign": foreign_session,
    "foreign, after it listened": foreign_session_that_listens,
    "foreign and left": foreign_session_that_was_left,
    "own and left": session_that_was_left,
    "of another mount": session_of_another_mount,
    "empty": sent_as(""),
    "long": sent_as("U" * 257),
    "with spaces": sent_as("U U"),
    "a glob": sent_as("*"),
    "no ASCII": sent_as("\N{LATIN SMALL LETTER E WITH ACUTE}"),
}


@covers("I-ISO-3", "I-ISO-5")
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("made", SESSIONS.values(), ids=SESSIONS.keys())
async def test_a_session_that_cannot_be_had_is_answered_like_one_that_never_was(
    stage: Stage, made: Callable[[Stage], Awaitable[str]], verb: str
) -> None:
    session = await made(stage)
    unknown = await stage.about_session(verb, UNKNOWN_SESSION)
    assert unknown.startswith(b"HTTP/1.1 404 ")
    assert await stage.about_session(verb, session) == unknown


async def test_a_cursor_that_is_not_for_this_list_is_answered_like_one_that_never_was(stage: Stage) -> None:
    own = (await acquire(stage.alice, cursor=True)).cursor
    foreign = (await acquire(stage.bob, cursor=True)).cursor
    elsewhere = (await acquire(stage.alice_at_orders, cursor=True)).cursor
    assert own is not None
    assert foreign is not None
    assert elsewhere is not None
    assert b'"tasks":[{' in await stage.page_at(own)
    unknown = await stage.page_at("U" * len(own))
    assert json.loads(unknown.partition(b"\r\n\r\n")[2])["error"] == {"code": -32602, "message": "Invalid cursor"}
    forged = own[:-1] + ("A" if own[-1] != "A" else "B")
    # The tag of one, and the place of the other.
    mixed = own[:21] + foreign[21:]
    for cursor in (foreign, elsewhere, forged, mixed, own[:-1], own + "=", "", "U" * 1000, "\N{DEGREE SIGN}"):
        assert await stage.page_at(cursor) == unknown
