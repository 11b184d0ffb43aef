"""The pages of task lists in Redis: `PageReader` encodes the bounds for a script and decodes its
result.

`RedisStore` uses it. A list is a sorted set of *positions*: the time and the id of a task in one
text. A page omits unreadable records.
"""

from datetime import datetime
from typing import Final, NamedTuple

from taskgate.domain.listing import STATES, ListedTask, OrderBy, Page, Position, TaskFilter, TaskOrder, TaskState
from taskgate.domain.record import OwnerKey
from taskgate.errors import StoreUnavailable
from taskgate.stores.codec import pack_text, pack_time, unpack_listed, unpack_text, unpack_time
from taskgate.stores.redis.client import RedisClient, Value
from taskgate.stores.redis.records import rows

_MOST: Final = 10**rows.TIME_WIDTH
_EMPTY_PAGE: Final = Page(tasks=(), next=None)


class _Bounds(NamedTuple):
    """The bounds of a list for the script.

    `low` and `high` are positions in it. `after` and `before` are times of the order by which the
    list is not sorted, both exclusive.
    """

    low: bytes
    high: bytes
    after: int
    before: int


class PageReader:
    """Reads pages of the tasks of one deployment."""

    def __init__(self, client: RedisClient, root: str) -> None:
        self._client = client
        self._root = root

    async def read(
        self, owner: OwnerKey, where: TaskFilter, order: TaskOrder, after: Position | None, limit: int, now: datetime
    ) -> Page:
        """Read a page; if the script skips many records, in more than one round trip."""
        states = [rows.state_name(state) for state in (STATES if where.states is None else where.states)]
        if not states or where.ids == frozenset():
            return _EMPTY_PAGE
        if where.ids is not None:
            return _cut(await self._of_ids(owner, where, order, after, now), order, limit)
        other = "updated" if order.by is OrderBy.CREATED else "created"
        by = "created" if order.by is OrderBy.CREATED else "updated"
        low, high, least, most = _bounds(where, order, after)
        found: list[tuple[bytes, bytes]] = []
        place: bytes | None = None
        while True:
            # One more than the limit shows whether there is a next page.
            wanted = limit + 1 - len(found)
            ends = (low, place or high) if order.descending else (place or low, high)
            values = (rows.owner_name(owner), by, int(order.descending), *ends, wanted, pack_time(now))
            arguments: list[Value] = [self._root, *values, other, least, most, *states]
            part, *rest = await self._client.run(rows.PAGE, (self._root + "open",), arguments)
            found += part
            if not rest:
                return _page(found, limit)
            place = rest[0]

    async def _of_ids(
        self, owner: OwnerKey, where: TaskFilter, order: TaskOrder, after: Position | None, now: datetime
    ) -> list[ListedTask]:
        """The matching tasks among a few ids, which are looked up one by one."""
        ids = [id for id in where.ids or () if id.isprintable()]
        if not ids:
            return []
        name, moment = rows.owner_name(owner).encode(), pack_time(now)
        rows_found = await self._client.run(rows.PICK, (self._root + "open",), (self._root, *ids))
        mine = (
            head
            for head, owner_found, expires in rows_found
            if head is not None and owner_found == name and int(expires) > moment
        )
        tasks = [task for task in map(_listed, mine) if task is not None and _matches(task, where)]
        tasks.sort(key=lambda task: task.position(order.by), reverse=order.descending)
        return [task for task in tasks if after is None or _is_past(task.position(order.by), after, order)]


def _page(found: list[tuple[bytes, bytes]], limit: int) -> Page:
    """The page of the found heads with their positions; one beyond the limit says that more follow."""
    tasks = tuple(task for head, _ in found[:limit] if (task := _listed(head)) is not None)
    if len(found) <= limit:
        return Page(tasks=tasks, next=None)
    # From the list, not the head: the last head may be unreadable.
    _, place = found[limit - 1]
    time, id = place[: rows.TIME_WIDTH], place[rows.TIME_WIDTH :]
    return Page(tasks=tasks, next=Position(unpack_time(int(time)), unpack_text(id)))


def _cut(tasks: list[ListedTask], order: TaskOrder, limit: int) -> Page:
    is_whole = len(tasks) <= limit
    return Page(tasks=tuple(tasks[:limit]), next=None if is_whole else tasks[limit - 1].position(order.by))


def _listed(head: bytes) -> ListedTask | None:
    try:
        return unpack_listed(head)
    except StoreUnavailable:
        return None


def _bounds(where: TaskFilter, order: TaskOrder, after: Position | None) -> _Bounds:
    created, updated = (where.created_after, where.created_before), (where.updated_after, where.updated_before)
    (least, most), (later, earlier) = (created, updated) if order.by is OrderBy.CREATED else (updated, created)
    # A position is a time and an id; a bare time sorts before every position of that time. All
    # bounds are exclusive, except a bare time as the lower end, where no record can be.
    lows = [] if least is None else [rows.time_text(pack_time(least) + 1)]
    highs = [] if most is None else [rows.time_text(pack_time(most))]
    place = None if after is None else rows.time_text(pack_time(after.time)) + pack_text(after.id)
    if place is not None:
        (highs if order.descending else lows).append(place)
    return _Bounds(
        b"-" if not lows else b"%b%b" % (b"(" if max(lows) == place else b"[", max(lows)),
        b"+" if not highs else b"(" + min(highs),
        -1 if later is None else pack_time(later),
        _MOST if earlier is None else pack_time(earlier),
    )


def _matches(task: ListedTask, where: TaskFilter) -> bool:
    return (
        (where.states is None or TaskState(task.status, task.tool_error) in where.states)
        and (where.created_after is None or task.created_at > where.created_after)
        and (where.created_before is None or task.created_at < where.created_before)
        and (where.updated_after is None or task.updated_at > where.updated_after)
        and (where.updated_before is None or task.updated_at < where.updated_before)
    )


def _is_past(place: Position, after: Position, order: TaskOrder) -> bool:
    return place < after if order.descending else place > after
