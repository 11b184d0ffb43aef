"""Fills a store with tasks, through the store's own code, and tells some of their ids.

They are finished tasks of one caller, or with `--mixed` those of a gateway that many callers use.

The one module of the benchmark that imports the package; it runs and ends before anything is measured. What it writes
depends on nothing but its arguments and the time of day.
"""

import argparse
import asyncio
import random
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson

from taskgate.auth.context import ANONYMOUS, AuthContext
from taskgate.domain.events import CallSucceeded, CancelRequested, Dispatched, TaskEvent
from taskgate.domain.machine import advance
from taskgate.domain.record import TaskRecord, TaskStatus, ToolCall
from taskgate.domain.versions import NEWEST_LEGACY, Peer
from taskgate.stores.base import Store
from taskgate.stores.open import SqliteOptions, open_shared, open_store
from taskgate.stores.redis.options import RedisOptions

Make = Callable[[str, int, str, datetime], TaskRecord]
"""Makes a task: its id, its number, the upstream it belongs to unless it is one of another, and when it was made."""
CALLERS, RARE = 1_000, 100
RARE_MOUNT = "seldom"
"""Of mixed tasks: how many callers have them, and of how many one is of the rare mount."""
_SEED = 7
_TOGETHER = 2_000  # inserts under way at once; the store lets them share commits
_TTL = timedelta(days=1)  # longer than a benchmark runs, so that nothing expires in it
_POLL = timedelta(seconds=2)
_MOST = 2**40  # bytes
_PATIENCE = timedelta(seconds=5)
_PARAMS = '{"name":"echo","arguments":{"text":"the quick brown fox"}}'
_RESULT = '{"content":[{"type":"text","text":"the quick brown fox"}],"isError":false}'
_PEER = Peer(revision=NEWEST_LEGACY, capabilities={}, info={"name": "taskgate-bench", "version": "1"})


def _created(id: str, number: int, mount: str, now: datetime) -> TaskRecord:
    return TaskRecord(
        id=id,
        owner=ANONYMOUS.owner(mount),
        call=ToolCall(tool="echo", peer=_PEER, host_session=None, progress_token=None, params=_PARAMS),
        status=TaskStatus.WORKING,
        created_at=now,
        updated_at=now,
        ttl=_TTL,
        poll_interval=_POLL,
    )


def _finished(id: str, _number: int, mount: str, now: datetime) -> TaskRecord:
    """A task as it rests after its call was answered."""
    created = _created(id, _number, mount, now)
    return advance(advance(created, Dispatched(), now), CallSucceeded(result=_RESULT, tool_error=False), now)


def mixed(id: str, number: int, mount: str, now: datetime) -> TaskRecord:
    """One of many finished tasks of many callers: of a hundred one was cancelled."""
    created = _created(id, number, mount, now)
    owner = AuthContext(key=f"caller-{number % CALLERS}").owner(RARE_MOUNT if number % RARE == 0 else mount)
    sent = advance(replace(created, owner=owner), Dispatched(), now)
    end: TaskEvent = CancelRequested() if number % 100 == 2 else CallSucceeded(result=_RESULT, tool_error=False)
    return advance(sent, end, now)


def ids_of(count: int) -> Iterator[str]:
    """The ids of as many tasks, in the order in which they are stored."""
    chance = random.Random(_SEED)
    return (urlsafe_b64encode(chance.randbytes(24)).decode() for _ in range(count))


async def fill(file: Path, mount: str, count: int, make: Make | None = None) -> None:
    """Put `count` tasks into the file, which is made if there is none.

    They are finished ones of the anonymous owner, if `make` makes no others.
    """
    options = SqliteOptions(path=file, synchronous="NORMAL", busy_timeout=_PATIENCE, max_size=_MOST)
    await _fill(await open_store("sqlite", options), make or _finished, mount, count)


async def _fill(store: Store, make: Make, mount: str, count: int) -> None:
    """Put `count` tasks into the store, and close it."""
    try:
        ids = ids_of(count)
        for start in range(0, count, _TOGETHER):
            now = datetime.now(UTC)
            numbers = range(start, min(start + _TOGETHER, count))
            some = [make(next(ids), number, mount, now) for number in numbers]
            await asyncio.gather(*(store.insert(record, caps=()) for record in some))
    finally:
        await store.close()


async def _run(given: argparse.Namespace) -> None:
    if given.valkey is not None:
        shared = await open_shared(RedisOptions(port=given.valkey, command_timeout=_PATIENCE))
        await _fill(shared.store, mixed, given.mount, given.count)
    else:
        await fill(given.database, given.mount, given.count, mixed if given.mixed else None)


def main() -> None:
    """Fill the file, then write a sample of the ids as a JSON list."""
    parser = argparse.ArgumentParser(description="fills a store with tasks")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--database", type=Path, help="the file to fill")
    place.add_argument("--valkey", type=int, help="the port of the server to fill")
    parser.add_argument("--mount", required=True, help="the name of the upstream the tasks belong to")
    parser.add_argument("--count", type=int, required=True, help="how many tasks")
    parser.add_argument("--mixed", action="store_true", help="tasks of many callers and two upstreams")
    parser.add_argument("--sample", type=int, default=0, help="at most how many ids to tell")
    parser.add_argument("--ids", type=Path, help="the file the ids go to")
    given = parser.parse_args()
    asyncio.run(_run(given))
    if given.ids is not None:
        chosen = set(random.Random(_SEED).sample(range(given.count), min(given.sample, given.count)))
        given.ids.write_bytes(orjson.dumps([id for at, id in enumerate(ids_of(given.count)) if at in chosen]))


if __name__ == "__main__":
    main()
