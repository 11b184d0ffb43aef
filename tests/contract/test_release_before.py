"""A process of the release before and one of this release share a server, as they do while a deployment is upgraded."""

import base64
import os
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from helpers.commit_before import package_of
from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_input, new_lease, new_record
from helpers.redis_stores import open_redis_store
from taskgate.domain.events import CallSucceeded, InputRequested, InputWithdrawn
from taskgate.domain.record import TaskStatus, Transition
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.redis.records.store import RedisStore
from taskgate.stores.references import plain_reference

pytestmark = pytest.mark.program

COMMIT = "109abf31"
"""The last one whose rows have no reference and no transitions."""
DONE = CallSucceeded(result="{}", tool_error=False)
ASKED = InputRequested(request=new_input("input-1"))
PROCESS = """
import asyncio, base64, pickle, sys
from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_input, new_lease, new_record
from helpers.redis_stores import open_redis_store
from taskgate.domain.events import CallSucceeded, InputRequested
from taskgate.stores.base import TaskStore
assert not hasattr(TaskStore, "referred"), "the release before"

async def make(store):
    running, asking, ended = (new_record(id=id, lease=new_lease()) for id in ("running", "asking", "ended"))
    await keep(store, running, asking, ended)
    asked = after(asking, InputRequested(request=new_input("input-1")))
    assert await store.swap(asked, expected=0)
    assert await store.swap(after(ended, CallSucceeded(result="{}", tool_error=False)), expected=0)

async def end(store):
    task = await store.load(OWNER, "task", now=EPOCH)
    assert task is not None and task.revision == 2
    assert await store.swap(after(task, CallSucceeded(result="{}", tool_error=False)), expected=2)

async def purge(store):
    assert [task.id for task in await store.purge(now=new_record().expires_at, limit=9)] == ["task"]

async def main():
    store = await open_redis_store(pickle.loads(base64.b64decode(sys.argv[1])))
    for step in sys.argv[2:]:
        await globals()[step](store)
    await store.close()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def release_before(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    found = package_of(COMMIT, tmp_path_factory.mktemp("before"))
    return {"PYTHONPATH": f"{found['PYTHONPATH']}{os.pathsep}{Path(__file__).parents[1]}"}


@pytest.fixture
async def store(shared_options: RedisOptions) -> AsyncIterator[RedisStore]:
    opened = await open_redis_store(shared_options)
    yield opened
    await opened.close()


def run(release: Mapping[str, str], options: RedisOptions, *steps: str) -> None:
    """Have a process of the release do these steps."""
    asked = base64.b64encode(pickle.dumps(options)).decode()
    command = [sys.executable, "-c", PROCESS, asked, *steps]
    done = subprocess.run(command, env=os.environ | release, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr


async def test_tasks_of_the_release_before_go_on_and_get_their_references_with_their_next_change(
    store: RedisStore, shared_options: RedisOptions, release_before: Mapping[str, str]
) -> None:
    run(release_before, shared_options, "make")
    part = await store.scan(unfinished=True, wants=lambda _: True, after=None, limit=9, now=EPOCH)
    assert {head.id for head in part.heads} == {"running", "asking"}
    for id, status in (("running", "working"), ("asking", "input_required"), ("ended", "completed")):
        task = await store.load(OWNER, id, now=EPOCH)
        assert task is not None
        assert task.status == status
        first, *rest = await store.transitions(id)
        assert first == (TaskStatus.WORKING, EPOCH)
        assert rest == ([] if id == "running" else [(task.status, task.updated_at)])
        assert await store.referred(plain_reference(id)) is None
    asking = await store.load(OWNER, "asking", now=EPOCH)
    assert asking is not None
    answered = after(asking, InputWithdrawn(key="input-1"))
    assert await store.swap(answered, expected=asking.revision)
    assert await store.referred(plain_reference("asking")) == "asking"
    assert (await store.transitions("asking"))[-1] == Transition(TaskStatus.WORKING, answered.updated_at)
    assert len(await store.purge(now=answered.expires_at, limit=9)) == 3
    assert await store.referred(plain_reference("asking")) is None


async def test_the_release_before_ends_and_removes_tasks_of_this_one(
    store: RedisStore, shared_options: RedisOptions, release_before: Mapping[str, str]
) -> None:
    record = new_record(id="task", lease=new_lease())
    await keep(store, record)
    asks = after(record, ASKED)
    assert await store.swap(asks, expected=0)
    works = after(asks, InputWithdrawn(key="input-1"))
    assert await store.swap(works, expected=1)
    run(release_before, shared_options, "end")
    ended = after(works, DONE)
    assert await store.transitions("task") == (
        Transition(TaskStatus.WORKING, EPOCH),
        Transition(TaskStatus.INPUT_REQUIRED, asks.updated_at),
        Transition(TaskStatus.WORKING, works.updated_at),
        Transition(TaskStatus.COMPLETED, ended.updated_at),
    )
    assert await store.referred(plain_reference("task")) == "task"
    run(release_before, shared_options, "purge")
    assert await store.referred(plain_reference("task")) is None
    assert await store.transitions("task") == ()
