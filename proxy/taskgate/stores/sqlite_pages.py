"""The SQL of a page of a list: one text for each shape of a filter, always led by an index.

Values only, as in sqlite_statements. What must not live here: what a filter means to a host.
"""

from datetime import datetime
from typing import Any, Final

from taskgate.domain.listing import STATES, OrderBy, Position, TaskFilter, TaskOrder
from taskgate.domain.record import OwnerKey
from taskgate.stores.codec import pack_time
from taskgate.stores.sqlite_statements import name, names, owner_digest

Named = dict[str, Any]
"""Values by the names of their places."""

_NOTHING: Final = "SELECT NULL, NULL, NULL WHERE 0"
_COLUMNS: Final = {OrderBy.CREATED: "created", OrderBy.UPDATED: "updated"}


def page_statement(
    owner: OwnerKey, where: TaskFilter, order: TaskOrder, after: Position | None, limit: int, now: datetime
) -> tuple[str, Named]:
    """The text and values that list heads, their times and their ids; `limit` is the statement's own."""
    column = _COLUMNS[order.by]
    terms, values = _bounds(where, order, after)
    values |= {"owner": owner_digest(owner), "now": pack_time(now), "limit": limit}
    states = sorted(STATES if where.states is None else where.states)
    for at, state in enumerate(states):
        values |= {f"status{at}": state.status.value, f"error{at}": state.tool_error}
    rest = " AND ".join(["owner = :owner", "expires > :now", *terms])
    if not states:
        return _NOTHING, {}
    if where.ids is not None:
        values["ids"] = names(where.ids)
        parts = [_by_ids(column, rest, len(states))]
    else:
        parts = [_by_state(column, rest, at) for at in range(len(states))]
    direction = "DESC" if order.descending else "ASC"
    return f"{' UNION ALL '.join(parts)} ORDER BY {column} {direction}, id {direction} LIMIT :limit", values


# Only names written in this module are put into a text; what a host says goes through the places.


def _by_state(column: str, rest: str, at: int) -> str:
    """A part for one state, read in the order of its index; SQLite merges such parts and sorts nothing."""
    # The index is named, or bounds of the other time would lead through that one's, and what they let pass be sorted.
    return (
        f"SELECT head, {column}, id FROM tasks INDEXED BY tasks_{column} "  # noqa: S608
        f"WHERE status = :status{at} AND tool_error = :error{at} AND {rest}"
    )


def _by_ids(column: str, rest: str, states: int) -> str:
    """Ids, which are few, are looked up one by one, and what they find is sorted."""
    # The order of the tables is fixed: never are ids that are not there looked for in all that is the owner's.
    wanted = ", ".join(f"(:status{at}, :error{at})" for at in range(states))
    return (
        f"SELECT head, {column}, id FROM (SELECT value FROM json_each(:ids)) CROSS JOIN tasks ON id = value "  # noqa: S608
        f"WHERE (status, tool_error) IN (VALUES {wanted}) AND {rest}"
    )


def _bounds(where: TaskFilter, order: TaskOrder, after: Position | None) -> tuple[list[str], Named]:
    """The terms of both times, of which an index serves the nearest on each side of the one that is ordered by."""
    created, updated = (where.created_after, where.created_before), (where.updated_after, where.updated_before)
    # No record was updated before it was created, so a bound of one time may be one of the other, too.
    if order.by is OrderBy.CREATED:
        column, other, rest = "created", "updated", updated
        least, most = created[0], min(filter(None, (created[1], updated[1])), default=None)
    else:
        column, other, rest = "updated", "created", created
        least, most = max(filter(None, (created[0], updated[0])), default=None), updated[1]
    terms: list[str] = []
    values: Named = {}
    # SQLite looks up one bound of a side: a place that is nearer than a bound stands for both.
    if after is not None and order.descending and (most is None or after.time < most):
        terms, most = [f"({column}, id) < (:time, :id)"], None
    elif after is not None and not order.descending and (least is None or after.time > least):
        terms, least = [f"({column}, id) > (:time, :id)"], None
    if terms and after is not None:
        values = {"time": pack_time(after.time), "id": name(after.id)}
    for term, key, bound in (
        (f"{column} > :least", "least", least),
        (f"{column} < :most", "most", most),
        (f"{other} > :after", "after", rest[0]),
        (f"{other} < :before", "before", rest[1]),
    ):
        if bound is not None:
            terms.append(term)
            values[key] = pack_time(bound)
    return terms, values
