"""The leases and heartbeats in Redis or Valkey, by the server's clock: `RedisLeaseStore`.

    lives      ZSET  holders, each by the time until which it counts as alive
    vanished   ZSET  holders that ended without `part` in the last ten minutes, each by the time of that
    open       ZSET  ids of unfinished tasks, each by the end of its lease
    task:ID    HASH  the row of a task, with its lease

A *holder* is the name of a process. `records/rows` has the layout of rows. `lifecycle/leases` sends
a heartbeat every few seconds. It restores the records that the reply calls `behind`.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from taskgate.domain.record import TaskId, TaskRecord
from taskgate.stores.codec import MICROSECOND, pack_text, unpack_text, unpack_time
from taskgate.stores.redis.client import RedisClient, Value, read_script
from taskgate.stores.redis.options import KeyNames
from taskgate.stores.redis.records import rows
from taskgate.stores.references import ReferenceOf, plain_reference
from taskgate.stores.shared import HeartbeatReply

_BEAT: Final = read_script("beat.lua")
_NO_MARK: Final = ""
"""The mark of a restored record. A mark says which process made a change, and that process ignores
the change's message. No process ignores the message of a restoration."""


class RedisLeaseStore:
    """The LeaseStore over the rows of tasks; the Lua scripts do the work, each in one round trip."""

    def __init__(self, client: RedisClient, keys: KeyNames, reference_of: ReferenceOf = plain_reference) -> None:
        self._client = client
        self._reference_of = reference_of
        self._root = keys.of("")
        self._lives = keys.of("lives")

    async def beat(self, holder: str, held: Mapping[TaskId, int], *, lease: timedelta) -> HeartbeatReply:
        arguments: list[Value] = [self._root, pack_text(holder), lease // MICROSECOND]
        for id, revision in held.items():
            arguments += (id, revision)
        reply = await self._client.run(_BEAT, (self._lives, f"{self._root}open"), arguments)
        # The time of the server in two parts, then the fields of HeartbeatReply, in its order.
        seconds, microseconds, ended, lost, behind, alive, before, full, vanished = reply
        return HeartbeatReply(
            time=unpack_time(int(seconds) * 1_000_000 + int(microseconds)),
            ended=_ids(ended),
            lost=_ids(lost),
            behind=_ids(behind),
            alive=frozenset(unpack_text(name) for name in alive),
            # Empty if the server did not know this holder, or no longer.
            before=unpack_time(int(before)) if before else None,
            full=bool(full),
            vanished={
                unpack_text(name): unpack_time(int(at)) for name, at in zip(vanished[::2], vanished[1::2], strict=True)
            },
        )

    async def restore(self, record: TaskRecord) -> bool:
        # No caps: the task was admitted when it was created.
        arguments = rows.insert_arguments(self._root, _NO_MARK, record, (), reference=self._reference_of(record.id))
        row = f"{self._root}task:{record.id}"
        return bool(await self._client.run(rows.RESTORE, (row,), arguments, durable=True))

    # Rows stay as they are: the leases of the process lapse, then others take its tasks over.
    async def part(self, holder: str) -> None:
        await self._client.do("ZREM", self._lives, pack_text(holder))


def _ids(names: list[bytes]) -> frozenset[TaskId]:
    return frozenset(unpack_text(name) for name in names)
