"""Who may do what with somebody's tasks and sessions: one table, and one test for each of its cells.

Alice has a session at `reports`, a task that runs and one that has ended. Each row of the table is somebody who asks,
each column what is asked for, each cell the exact answer. There is no column for `tasks/update`: no revision that is
spoken on this wire has it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, Literal

import orjson
import pytest

from helpers.host.answers import Answer
from helpers.host.host import Host
from helpers.waiting import bounded
from identity.gateways import begin, inside, let_go
from identity.scenes import Asker, Issuers, Scene, scene_of
from requirements import covers

STATUS: Final = "notifications/tasks/status"

# What is asked for, and how it is answered to the owner, to a stranger, and to whoever has no good token.
NOT_FOUND: Final = "200 -32602 Task not found"
NO_SESSION: Final = "404 -32001 Session not found"
NOBODY: Final = "401 -32600 Authentication is required"
NOT_ACCEPTED: Final = "401 -32600 The token is not accepted"
"""Of a token with a good signature, before the reason, which is about the token alone."""

OWNER: Final = {
    "tasks/get": "200 working",
    "tasks/get of an ended task": "200 completed",
    "tasks/result": "200 result",
    "tasks/result of an ended task": "200 result",
    "tasks/cancel": "200 cancelled",
    "tasks/cancel of an ended task": "200 -32602 The task has already ended",
    "tasks/list": "200 shows the tasks",
    "the cursor": "200 shows the rest",
    "ping in the session": "200 pong",
    "a task in the session": "200 created",
    "the session's stream": "200 hears the task",
    "a stream of its own": "200 hears nothing of the task",
    "DELETE of the session": "200",
}
STRANGER: Final = {
    "tasks/get": NOT_FOUND,
    "tasks/get of an ended task": NOT_FOUND,
    "tasks/result": NOT_FOUND,
    "tasks/result of an ended task": NOT_FOUND,
    "tasks/cancel": NOT_FOUND,
    "tasks/cancel of an ended task": NOT_FOUND,
    "tasks/list": "200 shows no task",
    "the cursor": "200 -32602 Invalid cursor",
    "ping in the session": NO_SESSION,
    "a task in the session": NO_SESSION,
    "the session's stream": NO_SESSION,
    "a stream of its own": "200 hears nothing of the task",
    "DELETE of the session": NO_SESSION,
}
UNKNOWN: Final = dict.fromkeys(OWNER, NOBODY)
REFUSED: Final = dict.fromkeys(OWNER, NOT_ACCEPTED)
# No call outlives the process that made it, so what ran has ended by then.
OWNER_AFTER_RESTART: Final = OWNER | {
    "tasks/get": "200 completed",
    "tasks/cancel": "200 -32602 The task has already ended",
}

TABLE: Final[Mapping[str, tuple[Asker, Mapping[str, str]]]] = {
    "the same token, another session": (Asker(token="same"), OWNER),
    "a refreshed token, the same session": (Asker(session="alice's"), OWNER),
    "a refreshed token, another session": (Asker(), OWNER),
    "fewer scopes": (Asker(scopes=("reports.read",)), OWNER),
    "another client": (Asker(client="host-b"), STRANGER),
    "another subject": (Asker(subject="bob"), STRANGER),
    "the subject in capitals": (Asker(subject="ALICE"), STRANGER),
    "the client on its own behalf": (Asker(subject=None), STRANGER),
    "another issuer, the same subject and client": (Asker(provider=1), STRANGER),
    "no token": (Asker(token="none", session="alice's"), UNKNOWN),
    "an expired token": (Asker(lifetime=-60, session="alice's"), REFUSED),
    "garbage for a token": (Asker(token="garbage", session="alice's"), UNKNOWN),
    "another mount": (Asker(mount="orders", audience="orders"), STRANGER),
    "another mount, with the token of this one": (Asker(mount="orders", session="alice's"), REFUSED),
    "this mount, with the token of another": (Asker(audience="orders", session="alice's"), REFUSED),
    "after a restart": (Asker(restarted="same key", session="alice's"), OWNER_AFTER_RESTART),
    "after a rotation of the deployment key": (Asker(restarted="rotated key"), OWNER_AFTER_RESTART),
    "after a rotation, the same session": (Asker(restarted="rotated key", session="alice's"), OWNER_AFTER_RESTART),
    "another subject after a rotation": (Asker(restarted="rotated key", subject="bob"), STRANGER),
    "after the deployment key was replaced": (Asker(restarted="replaced key"), STRANGER),
}


Question = Callable[[Scene], Awaitable[str]]


def about_task(method: str, which: Literal["running", "ended"], tell: Callable[[Answer], str]) -> Question:
    """A question about one of the tasks."""

    async def ask(scene: Scene) -> str:
        task = scene.owned.running if which == "running" else scene.owned.ended
        return told(await scene.asker.ask(method, {"taskId": task}), tell)

    return ask


async def result_of_running(scene: Scene) -> str:
    """The task ends once somebody waits for it; whoever may not wait is answered before."""
    answer = asyncio.create_task(scene.asker.ask("tasks/result", {"taskId": scene.owned.running}))
    async with bounded():
        await scene.alice.ask("ping")
        let_go(scene.server)
        return told(await answer, lambda _: "result")


async def listing(scene: Scene) -> str:
    def tell(answer: Answer) -> str:
        shown = {task["taskId"] for task in answer.result["tasks"]}
        mine = {scene.owned.running, scene.owned.ended}
        return "shows the tasks" if mine <= shown else "shows no task" if not shown else f"shows {shown}"

    return told(await scene.asker.ask("tasks/list"), tell)


async def rest_of_list(scene: Scene) -> str:
    def tell(answer: Answer) -> str:
        shown = [task["taskId"] for task in answer.result["tasks"]]
        return "shows the rest" if shown == [scene.owned.ended] else f"shows {shown}"

    return told(await scene.asker.ask("tasks/list", {"cursor": scene.owned.cursor}), tell)


async def ping(scene: Scene) -> str:
    return told(await scene.intruder.ask("ping"), lambda answer: f"pong{answer.result or ''}")


async def create(scene: Scene) -> str:
    return told(await scene.intruder.call("echo", {}, task={"ttl": 60_000}), lambda _: "created")


async def leave(scene: Scene) -> str:
    return await http_told(scene.intruder, "DELETE")


async def listen(scene: Scene) -> str:
    """Whether the stream of Alice's session can be opened, and tells of a task that is made in it."""
    refusal = await http_told(scene.intruder, "GET")
    if refusal != "200":
        return refusal
    async with scene.intruder.listen() as stream:
        await begin_and_cancel(inside(scene.alice, scene.owned))
        await stream.until(STATUS)
    return "200 hears the task"


async def overhear(scene: Scene) -> str:
    """Whether a stream of the asker's own tells of what Alice does in another session."""
    refusal = await http_told(scene.asker, "GET")
    if refusal != "200":
        return refusal
    async with scene.asker.listen() as stream, scene.alice.listen() as owners:
        hers = await begin_and_cancel(scene.alice)
        await owners.until(STATUS)
        # What had been told would be there before this one.
        own = await begin_and_cancel(scene.asker)
        await stream.until(STATUS)
    heard = [note["params"]["taskId"] for note in stream.of(STATUS)]
    assert own in heard
    return "200 hears the task" if hers in heard else "200 hears nothing of the task"


QUESTIONS: Final[Mapping[str, Question]] = {
    "tasks/get": about_task("tasks/get", "running", lambda answer: str(answer.result["status"])),
    "tasks/get of an ended task": about_task("tasks/get", "ended", lambda answer: str(answer.result["status"])),
    "tasks/result": result_of_running,
    "tasks/result of an ended task": about_task("tasks/result", "ended", lambda _: "result"),
    "tasks/cancel": about_task("tasks/cancel", "running", lambda answer: str(answer.result["status"])),
    "tasks/cancel of an ended task": about_task("tasks/cancel", "ended", lambda answer: str(answer.result["status"])),
    "tasks/list": listing,
    "the cursor": rest_of_list,
    "ping in the session": ping,
    "a task in the session": create,
    "the session's stream": listen,
    "a stream of its own": overhear,
    "DELETE of the session": leave,
}

CELLS: Final = [
    pytest.param(asker, column, outcome, id=f"{row}: {column}")
    for row, (asker, outcomes) in TABLE.items()
    for column, outcome in outcomes.items()
]


@covers("I-ISO-1", "I-ISO-2", "I-ISO-5", "I-ISO-6", "T10", "T19")
@pytest.mark.parametrize(("asker", "column", "outcome"), CELLS)
async def test_what_is_somebodys_is_nobody_elses(
    asker: Asker, column: str, outcome: str, issuers: Issuers, tmp_path: Path
) -> None:
    async with scene_of(asker, issuers, tmp_path, cursor=column == "the cursor") as scene:
        assert (await QUESTIONS[column](scene)).partition(": ")[0] == outcome
        # Whatever a stranger tried, it changed nothing for its owner.
        if outcome in (NOT_FOUND, NO_SESSION, NOBODY, NOT_ACCEPTED) and asker.restarted != "replaced key":
            await expect_untouched(scene)


def test_every_question_is_asked_of_everybody() -> None:
    assert all(outcomes.keys() == QUESTIONS.keys() for _, outcomes in TABLE.values())


# --- looking ---------------------------------------------------------------------------------------------------------


async def expect_untouched(scene: Scene) -> None:
    """Alice's tasks are as they were, and her session is there."""
    alice = inside(scene.alice, scene.owned)
    assert (await alice.ask("ping")).status == 200
    states = [(await alice.task(task))["status"] for task in (scene.owned.running, scene.owned.ended)]
    assert states[1] == "completed"
    assert states[0] != "cancelled"


async def begin_and_cancel(host: Host) -> str:
    """The id of a task that its host has heard of twice by then."""
    task = await begin(host)
    assert (await host.ask("tasks/cancel", {"taskId": task})).result["status"] == "cancelled"
    return task


def told(answer: Answer, tell: Callable[[Answer], str]) -> str:
    """An answer as the table has it."""
    assert answer.message is not None
    if "error" in answer.message:
        return f"{answer.status} {answer.code} {answer.error['message']}"
    return f"{answer.status} {tell(answer)}"


async def http_told(host: Host, verb: str) -> str:
    """How GET or DELETE is answered, as the table has it; a stream is left as soon as it is open."""
    headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {host.token}"}
    headers |= {"Mcp-Session-Id": host.session or ""}
    if host.token is None:
        del headers["Authorization"]
    async with bounded(), host.http.request(verb, host.url, headers=headers) as response:
        if response.status == 200:
            return "200"
        error = orjson.loads(await response.read())["error"]
        return f"{response.status} {error['code']} {error['message']}"
