"""Who lives and who holds what, in Redis or Valkey, by the server's clock.

    lives    ZSET  holders, each by the time until which it counts as alive

What must not live here: what a process does without its lease, and how a task lies in the store (`rows`).
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from taskgate.domain.record import TaskId, TaskRecord
from taskgate.stores.codec import pack_span, pack_text, unpack_text, unpack_time
from taskgate.stores.redis.client import RedisClient, Value, read_script
from taskgate.stores.redis.keys import KeyNames
from taskgate.stores.redis.records import rows
from taskgate.stores.shared import HeartbeatReply

_BEAT: Final = read_script("beat.lua")
_NOBODY: Final = ""
"""Who tells the news of what was put back: this process hears of it as the others do."""


class RedisLeaseStore:
    """A LeaseStore."""

    def __init__(self, client: RedisClient, keys: KeyNames) -> None:
        self._client = client
        self._root = keys.of("")
        self._lives = keys.of("lives")

    async def beat(self, holder: str, held: Mapping[TaskId, int], *, lease: timedelta) -> HeartbeatReply:
        """See LeaseStore.beat."""
        arguments: list[Value] = [self._root, pack_text(holder), pack_span(lease)]
        for id, revision in held.items():
            arguments += (id, revision)
        said = await self._client.run(_BEAT, (self._lives, f"{self._root}open"), arguments)
        seconds, microseconds, ended, lost, behind, alive, before, full = said
        return HeartbeatReply(
            time=unpack_time(int(seconds) * 1_000_000 + int(microseconds)),
            ended=_ids(ended),
            lost=_ids(lost),
            behind=_ids(behind),
            alive=frozenset(unpack_text(name) for name in alive),
            before=unpack_time(int(before)) if before else None,
            full=bool(full),
        )

    async def restore(self, record: TaskRecord) -> bool:
        """See LeaseStore.restore."""
        arguments = rows.inserted(self._root, _NOBODY, record, ())
        row = f"{self._root}task:{record.id}"
        return bool(await self._client.run(rows.RESTORE, (row,), arguments, durable=True))

    async def part(self, holder: str) -> None:
        """See LeaseStore.part."""
        await self._client.do("ZREM", self._lives, pack_text(holder))


def _ids(names: list[bytes]) -> frozenset[TaskId]:
    return frozenset(unpack_text(name) for name in names)
