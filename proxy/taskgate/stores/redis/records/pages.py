"""The pages of task lists in Redis: `PageReader` encodes the bounds for a script and decodes its
result.

`RedisStore` uses it. A list is a sorted set of *positions*: the time and the id of a task in one
text. An owner has one list for each state and time, and the script PAGE (`page.lua`) merges those of
the wanted states. A page omits unreadable records.

PAGE returns its matches, each a head, a position and an expiry, as many as are wanted or as there are. In one
run it looks at LOOKS records, and at fewer behind them than are wanted. If it stops there with fewer
matches, a second value follows. That is the bound to continue from, `(` and a position, which
replaces `low`, or `high` if descending.
"""

import re
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from taskgate.domain.listing import STATES, ListedTask, OrderBy, Page, Position, TaskFilter, TaskOrder, TaskState
from taskgate.domain.record import OwnerKey, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import MOST_SCANNED, Scan
from taskgate.stores.codec import (
    has_texts,
    is_retrieved,
    pack_text,
    pack_time,
    unpack_listed,
    unpack_text,
    unpack_time,
)
from taskgate.stores.redis.client import RedisClient, Value
from taskgate.stores.redis.records import rows

LOOKS: Final = 1000
"""Records after which the script PAGE stops: BUDGET in `page.lua`."""

_AT_ONCE: Final = 500
"""Heads that a scan decodes before other work has its turn."""
_MEMBER: Final = r"([0-9]{1,18}) ((?:[0-9a-f]{2}){0,4096})"
_PLACE: Final = re.compile(_MEMBER)
_PLACES: Final = re.compile(f"{_MEMBER} {_MEMBER}")

_MOST: Final = 10**rows.TIME_WIDTH
_EMPTY_PAGE: Final = Page(tasks=(), next=None)

_FoundTask = tuple[bytes, bytes, bytes]
"""A head, its position in the list, and its expiry."""


class _Bounds(NamedTuple):
    """The bounds of a list for the script PAGE.

    `low` and `high` are for ZRANGE with BYLEX: a position or a bare time behind `(` or `[`, or `-`
    and `+` for no bound. `other_after` and `other_before` bound the time by which the list is not
    sorted, both exclusive.
    """

    low: bytes
    high: bytes
    other_after: int
    other_before: int


class _Place(NamedTuple):
    """A task by a time: its expiry, or its creation. A scan goes on behind it."""

    time: int
    member: bytes

    def text(self) -> str:
        return f"{self.time} {self.member.hex()}"


_LAST: Final = _Place(_MOST - 1, b"")
"""A place later than all."""


class PageReader:
    """The reader of pages of the tasks of one deployment."""

    def __init__(self, client: RedisClient, root: str) -> None:
        self._client = client
        self._root = root
        # By it a node of a cluster sees whether it has the slot of all our keys. No script here reads
        # it.
        self._keys = (root + "open",)

    async def read(
        self, owner: OwnerKey, where: TaskFilter, order: TaskOrder, after: Position | None, limit: int, now: datetime
    ) -> Page:
        """Read a page; if the script skips many records, in more than one round trip.

        The page is short if it has looked at MOST_SCANNED records.
        """
        states = [rows.state_name(state) for state in (STATES if where.states is None else where.states)]
        if not states or where.ids == frozenset():
            return _EMPTY_PAGE
        if where.ids is not None:
            return _cut(await self._of_ids(owner, where, order, after, now), order, limit)
        other = "updated" if order.by is OrderBy.CREATED else "created"
        by = "created" if order.by is OrderBy.CREATED else "updated"
        low, high, other_after, other_before = _bounds(where, order, after)
        found: list[_FoundTask] = []
        bound = b""
        for _ in range(max(1, MOST_SCANNED // (LOOKS + limit + 1))):
            # One more than the limit shows whether there is a next page.
            wanted = limit + 1 - len(found)
            # In the order in which the script unpacks them.
            values = (rows.owner_name(owner), by, int(order.descending), low, high, wanted, pack_time(now))
            unfetched = int(where.unfetched)
            arguments: list[Value] = [self._root, *values, other, other_after, other_before, unfetched, *states]
            part, *rest = await self._client.run(rows.PAGE, self._keys, arguments)
            found += part
            if not rest:
                return _page(found, limit)
            (bound,) = rest
            low, high = (low, bound) if order.descending else (bound, high)
        return Page(tasks=_tasks(found), next=_position(bound[1:]))

    async def scan_unfinished(
        self,
        wants: Callable[[TaskRecord], bool],
        texts: Collection[bytes],
        after: str | None,
        limit: int,
        now: datetime,
    ) -> Scan:
        """A part of the unfinished tasks of all owners, by expiry."""
        looks, moment = 0, pack_time(now)
        place = _Place(moment, b"") if after is None else _unpack_place(after)
        heads: list[TaskRecord] = []
        while place is not None and looks < MOST_SCANNED:
            wanted = min(_AT_ONCE, MOST_SCANNED - looks)
            arguments: list[Value] = [self._root, rows.ALL_UNFINISHED, place.time, place.member, wanted]
            part = await self._client.run(rows.SCAN, self._keys, arguments)
            for id, expires, head, holder, until, caller in part:
                looks += 1
                place = _Place(int(expires), id)
                may_match = head is not None and place.time > moment and has_texts(texts, head, caller or b"")
                record = _scanned(head, holder, until, expires, caller) if may_match else None
                if record is not None and wants(record):
                    heads.append(record)
                    if len(heads) == limit:
                        return Scan(tuple(heads), place.text())
            if len(part) < wanted:
                place = None
        return Scan(tuple(heads), None if place is None else place.text())

    async def scan_newest(
        self,
        wants: Callable[[TaskRecord], bool],
        texts: Collection[bytes],
        after: str | None,
        limit: int,
        now: datetime,
    ) -> Scan:
        """A part of the tasks of all owners, the newest first.

        No set has them by their creation. So of those that expire last, at most MOST_SCANNED, the times are
        read and sorted; older ones follow in the same way. Only the heads of a part are read.
        """
        moment = pack_time(now)
        end, place = (_LAST, _LAST) if after is None else _unpack_places(after)
        if end is None or place is None:
            return Scan((), None)
        arguments: list[Value] = [self._root, moment, end.time, end.member, MOST_SCANNED + 1, *rows.ALL_TASKS]
        sets = await self._client.run(rows.NEWEST, self._keys, arguments)
        # Pairs of a flat list, whose first is the member.
        members = [_Place(int(found[at + 1]), found[at]) for found in sets for at in range(0, len(found), 2)]
        members.sort(reverse=True)
        is_whole = len(members) <= MOST_SCANNED
        del members[MOST_SCANNED:]
        following = None if is_whole else f"{members[-1].text()} {_LAST.text()}"
        order = [each async for each in self._created(members) if each < place]
        order.sort(reverse=True)
        heads: list[TaskRecord] = []
        start, wanted = 0, limit
        while start < len(order):
            part = order[start : start + wanted]
            values = await self._fields([each.member for each in part], "head", "holder", "until", "expires", "caller")
            for at, (head, holder, until, expires, caller) in enumerate(values, start + 1):
                if head is None or expires is None or not expires.isdigit() or int(expires) <= moment:
                    continue
                may_match = has_texts(texts, head, caller or b"")
                record = _scanned(head, holder or b"", until or b"0", expires, caller) if may_match else None
                if record is not None and wants(record):
                    heads.append(record)
                    if len(heads) == limit:
                        if at < len(order):
                            following = f"{end.text()} {order[at - 1].text()}"
                        return Scan(tuple(heads), following, is_whole and end == _LAST)
            start, wanted = start + len(part), _AT_ONCE
        return Scan(tuple(heads), following, is_whole and end == _LAST)

    async def _created(self, members: Sequence[_Place]) -> AsyncIterator[_Place]:
        """The members that are tasks, by the time of their creation."""
        for start in range(0, len(members), LOOKS):
            ids = [each.member for each in members[start : start + LOOKS]]
            for id, (created,) in zip(ids, await self._fields(ids, "created"), strict=True):
                if created and created.isdigit():
                    yield _Place(int(created), id)

    async def _fields(self, ids: Sequence[Value], *names: str) -> list[list[bytes | None]]:
        """These fields of the rows of tasks; without values for a row that is not there."""
        found = await self._client.run(rows.FIELDS, self._keys, (self._root, len(names), *names, *ids))
        return [[None] * len(names) if row is None else row for row in found]

    async def _of_ids(
        self, owner: OwnerKey, where: TaskFilter, order: TaskOrder, after: Position | None, now: datetime
    ) -> list[ListedTask]:
        """The matching tasks among a few ids, which are looked up one by one."""
        # Hosts name these ids. Those of tasks are printable, and some others have no UTF-8 form.
        ids = [id for id in where.ids or () if id.isprintable()]
        if not ids:
            return []
        name, moment = rows.owner_name(owner).encode(), pack_time(now)
        mine = (
            (head, expires)
            for head, owner_found, expires in await self._fields(ids, "head", "owner", "expires")
            if head is not None
            and owner_found == name
            and expires is not None
            and expires.isdigit()
            and int(expires) > moment
            and not (where.unfetched and is_retrieved(head))
        )
        tasks = [task for found in mine if (task := _listed(*found)) is not None and _matches(task, where)]
        tasks.sort(key=lambda task: task.position(order.by), reverse=order.descending)
        return [task for task in tasks if after is None or _is_past(task.position(order.by), after, order)]


def _unpack_place(text: str) -> _Place | None:
    """Decode a place; None for a text that is none."""
    match = _PLACE.fullmatch(text)
    return None if match is None else _Place(int(match[1]), bytes.fromhex(match[2]))


def _unpack_places(text: str) -> tuple[_Place | None, _Place | None]:
    """Decode two places, by expiry and by creation; None for a text that is none."""
    match = _PLACES.fullmatch(text)
    if match is None:
        return None, None
    return _Place(int(match[1]), bytes.fromhex(match[2])), _Place(int(match[3]), bytes.fromhex(match[4]))


def _scanned(
    head: bytes | None, holder: bytes, until: bytes, expires: bytes, caller: bytes | None
) -> TaskRecord | None:
    """Decode the head of one row of many; None if it is not readable."""
    try:
        return rows.read_head(head, rows.unpack_lease(holder, until), expires, caller=caller)
    except StoreUnavailable:
        return None


def _page(found: list[_FoundTask], limit: int) -> Page:
    """The page of the found heads with their positions; one beyond the limit says that more follow."""
    # From the list, not the head: the last head may be unreadable.
    following = None if len(found) <= limit else _position(found[limit - 1][1])
    return Page(tasks=_tasks(found[:limit]), next=following)


def _tasks(found: list[_FoundTask]) -> tuple[ListedTask, ...]:
    return tuple(task for head, _, expires in found if (task := _listed(head, expires)) is not None)


def _position(written: bytes) -> Position:
    time, id = written[: rows.TIME_WIDTH], written[rows.TIME_WIDTH :]
    return Position(unpack_time(int(time)), unpack_text(id))


def _cut(tasks: list[ListedTask], order: TaskOrder, limit: int) -> Page:
    is_whole = len(tasks) <= limit
    return Page(tasks=tuple(tasks[:limit]), next=None if is_whole else tasks[limit - 1].position(order.by))


def _listed(head: bytes, expires: bytes) -> ListedTask | None:
    try:
        return unpack_listed(head, rows.unpack_number(expires))
    except StoreUnavailable:
        return None


def _bounds(where: TaskFilter, order: TaskOrder, after: Position | None) -> _Bounds:
    created, updated = (where.created_after, where.created_before), (where.updated_after, where.updated_before)
    own, other = (created, updated) if order.by is OrderBy.CREATED else (updated, created)
    (own_after, own_before), (other_after, other_before) = own, other
    # A position is a time and an id; a bare time sorts before every position of that time. All
    # bounds are exclusive, except a bare time as the lower end, where no record can be.
    lows = [] if own_after is None else [rows.time_text(pack_time(own_after) + 1)]
    highs = [] if own_before is None else [rows.time_text(pack_time(own_before))]
    position = None if after is None else rows.time_text(pack_time(after.time)) + pack_text(after.id)
    if position is not None:
        (highs if order.descending else lows).append(position)
    return _Bounds(
        b"-" if not lows else b"%b%b" % (b"(" if max(lows) == position else b"[", max(lows)),
        b"+" if not highs else b"(" + min(highs),
        -1 if other_after is None else pack_time(other_after),
        _MOST if other_before is None else pack_time(other_before),
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
