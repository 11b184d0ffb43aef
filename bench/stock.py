"""Fills the file of a SQLite store with finished tasks, through the store's own code, and tells some of their ids.

The one module of the benchmark that imports the package; it runs and ends before anything is measured. What it writes
depends on nothing but its arguments and the time of day.
"""

import argparse
import asyncio
import random
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson

from taskgate.auth.context import ANONYMOUS
from taskgate.domain.events import CallSucceeded, Dispatched
from taskgate.domain.machine import advance
from taskgate.domain.record import TaskRecord, TaskStatus, ToolCall
from taskgate.domain.versions import NEWEST_LEGACY, Peer
from taskgate.stores.open import SqliteOptions, open_store

_SEED = 7
_TOGETHER = 2_000  # inserts under way at once; the store lets them share commits
_TTL = timedelta(days=1)  # longer than a benchmark runs, so that nothing expires in it
_POLL = timedelta(seconds=2)
_MOST = 2**40  # bytes
_PATIENCE = timedelta(seconds=5)
_PARAMS = '{"name":"echo","arguments":{"text":"the quick brown fox"}}'
_RESULT = '{"content":[{"type":"text","text":"the quick brown fox"}],"isError":false}'
_PEER = Peer(revision=NEWEST_LEGACY, capabilities={}, info={"name": "taskgate-bench", "version": "1"})


def _finished(id: str, mount: str, now: datetime) -> TaskRecord:
    """A task as it rests after its call was answered."""
    created = TaskRecord(
        id=id,
        owner=ANONYMOUS.owner(mount),
        call=ToolCall(tool="echo", peer=_PEER, host_session=None, progress_token=None, params=_PARAMS),
        status=TaskStatus.WORKING,
        created_at=now,
        updated_at=now,
        ttl=_TTL,
        poll_interval=_POLL,
    )
    return advance(advance(created, Dispatched(), now), CallSucceeded(result=_RESULT, tool_error=False), now)


def ids_of(count: int) -> Iterator[str]:
    """The ids of as many tasks, in the order in which they are stored."""
    chance = random.Random(_SEED)
    return (urlsafe_b64encode(chance.randbytes(24)).decode() for _ in range(count))


async def fill(file: Path, mount: str, count: int) -> None:
    """Put `count` finished tasks of the anonymous owner into the file, which is made if there is none."""
    options = SqliteOptions(path=file, synchronous="NORMAL", busy_timeout=_PATIENCE, max_size=_MOST)
    store = await open_store("sqlite", options)
    try:
        ids = ids_of(count)
        for start in range(0, count, _TOGETHER):
            now = datetime.now(UTC)
            some = [_finished(next(ids), mount, now) for _ in range(min(_TOGETHER, count - start))]
            await asyncio.gather(*(store.insert(record, caps=()) for record in some))
    finally:
        await store.close()


def main() -> None:
    """Fill the file, then write a sample of the ids as a JSON list."""
    parser = argparse.ArgumentParser(description="fills a store with finished tasks")
    parser.add_argument("--database", type=Path, required=True, help="the file to fill")
    parser.add_argument("--mount", required=True, help="the name of the upstream the tasks belong to")
    parser.add_argument("--count", type=int, required=True, help="how many tasks")
    parser.add_argument("--sample", type=int, required=True, help="at most how many ids to tell")
    parser.add_argument("--ids", type=Path, required=True, help="the file the ids go to")
    given = parser.parse_args()
    asyncio.run(fill(given.database, given.mount, given.count))
    chosen = set(random.Random(_SEED).sample(range(given.count), min(given.sample, given.count)))
    given.ids.write_bytes(orjson.dumps([id for at, id in enumerate(ids_of(given.count)) if at in chosen]))


if __name__ == "__main__":
    main()
