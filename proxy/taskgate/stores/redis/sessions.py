"""The host sessions in Redis or Valkey: `RedisSessionStore`, with a row for each and an index by
expiry.

    session:NAME    HASH  owner (a digest), peer, expires
    sessions        ZSET  names by expiry

A name is the digest of an id. Times are microseconds since 1970.
"""

from datetime import datetime
from typing import Final

from taskgate.domain.record import OwnerKey
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import SessionRecord
from taskgate.stores.codec import pack_peer, pack_time, unpack_peer
from taskgate.stores.redis.client import RedisClient, read_script
from taskgate.stores.redis.options import KeyNames, digest
from taskgate.stores.redis.records.rows import unpack_moment

_PUT: Final = read_script("session_put.lua")
_TOUCH: Final = read_script("session_touch.lua")
_DROP: Final = read_script("session_drop.lua")
_PURGE: Final = read_script("session_purge.lua")

_SLACK: Final = 24 * 3600 * 1000
"""Milliseconds that a row outlives its session, so that a purge removes and counts it."""
_AT_ONCE: Final = 1000
"""Sessions that a purge removes in one step."""


class RedisSessionStore:
    """A SessionStore; `records.store.RedisStore` delegates to it."""

    def __init__(self, client: RedisClient, keys: KeyNames) -> None:
        self._client = client
        self._keys = keys
        self._index = keys.of("sessions")

    async def put(self, record: SessionRecord) -> None:
        name = digest(record.id)
        values = (digest(*record.owner), pack_peer(record.peer), pack_time(record.expires_at), name, _SLACK)
        if not await self._client.run(_PUT, (self._row(record.id), self._index), values, durable=True):
            raise StoreUnavailable("A session of that id is stored already")

    async def find(self, owner: OwnerKey, id: str, *, now: datetime) -> SessionRecord | None:
        stored_owner, peer, expires = await self._client.do("HMGET", self._row(id), "owner", "peer", "expires")
        if stored_owner != digest(*owner).encode():
            return None
        ends = unpack_moment(expires)
        return SessionRecord(id=id, owner=owner, peer=unpack_peer(peer or b""), expires_at=ends) if ends > now else None

    async def touch(self, ids: frozenset[str], *, until: datetime) -> None:
        if ids:
            rows, names = [self._row(id) for id in ids], [digest(id) for id in ids]
            await self._client.run(_TOUCH, (self._index, *rows), (pack_time(until), _SLACK, *names))

    async def drop(self, owner: OwnerKey, id: str) -> bool:
        whose = (digest(*owner), digest(id))
        return bool(await self._client.run(_DROP, (self._row(id), self._index), whose, durable=True))

    async def purge_sessions(self, *, now: datetime) -> int:
        total = 0
        while True:
            limits = (pack_time(now), self._keys.of("session:"), _AT_ONCE)
            removed: int = await self._client.run(_PURGE, (self._index,), limits)
            total += removed
            if removed < _AT_ONCE:
                return total

    def _row(self, id: str) -> str:
        return self._keys.of("session", id)
