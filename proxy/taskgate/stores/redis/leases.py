"""Who lives and who holds what, in Redis or Valkey, by the server's clock.

    lives    ZSET  holders, each by the time until which it counts as alive

What must not live here: what a process does without its lease, and how a task lies in the store (`rows`).
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from taskgate.domain.record import TaskId, TaskRecord
from taskgate.stores.codec import pack_span, pack_text, unpack_text, unpack_time
from taskgate.stores.redis.connection import RedisConnection, Value, read_script
from taskgate.stores.redis.keys import KeyNames
from taskgate.stores.redis.records import rows
from taskgate.stores.sharing import Beat

_BEAT: Final = read_script("beat.lua")
_NOBODY: Final = ""
"""Who tells the news of what was put back: this process hears of it as the others do."""


class LeasesInRedis:
    """See Leases."""

    def __init__(self, connection: RedisConnection, keys: KeyNames) -> None:
        self._connection = connection
        self._root = keys.of("")
        self._lives = keys.of("lives")

    async def beat(self, holder: str, held: Mapping[TaskId, int], *, lease: timedelta) -> Beat:
        """See Leases.beat."""
        arguments: list[Value] = [self._root, pack_text(holder), pack_span(lease)]
        for id, revision in held.items():
            arguments += (id, revision)
        said = await self._connection.run(_BEAT, (self._lives, f"{self._root}open"), arguments)
        seconds, microseconds, ended, lost, behind, alive, before, full = said
        return Beat(
            time=unpack_time(int(seconds) * 1_000_000 + int(microseconds)),
            ended=_ids(ended),
            lost=_ids(lost),
            behind=_ids(behind),
            alive=frozenset(unpack_text(name) for name in alive),
            before=unpack_time(int(before)) if before else None,
            full=bool(full),
        )

    async def restore(self, record: TaskRecord) -> bool:
        """See Leases.restore."""
        arguments = rows.inserted(self._root, _NOBODY, record, ())
        row = f"{self._root}task:{record.id}"
        return bool(await self._connection.run(rows.RESTORE, (row,), arguments, durable=True))

    async def part(self, holder: str) -> None:
        """See Leases.part."""
        await self._connection.do("ZREM", self._lives, pack_text(holder))


def _ids(names: list[bytes]) -> frozenset[TaskId]:
    return frozenset(unpack_text(name) for name in names)
