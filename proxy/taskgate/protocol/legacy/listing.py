"""The page, filter and order that a `tasks/list` of a legacy host asks for (SEP-1904, F-FILTER-*).

A criterion is in `params.filter` or beside it; `filter` wins (AMB-5). An unknown criterion is
ignored, one of a wrong shape is refused. A list of values matches any of them, an empty list
matches nothing. A time needs a date, a time of day, and an offset or `Z`: without an offset, its
time zone would be a guess.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from taskgate.domain.listing import ALL_TASKS, NEWEST_FIRST, STATES, OrderBy, TaskFilter, TaskOrder, TaskState
from taskgate.domain.record import TaskStatus
from taskgate.errors import InvalidParams
from taskgate.jsontext.spans import Members
from taskgate.protocol.legacy.tasks import presented_status
from taskgate.protocol.messages import required_string, value_of
from taskgate.protocol.vocabulary import TOOLS_CALL

_Value = TypeVar("_Value")

MAX_VALUES: Final = 1_000
"""Largest number of values of one criterion."""

FILTER_CAPABILITY: Final = (
    '{"methods":["tools/call"],"taskIds":true,"status":true,"createdAt":{"before":true,"after":true},'
    '"lastUpdatedAt":{"before":true,"after":true},'
    '"order":{"by":["createdAt","lastUpdatedAt"],"direction":["asc","desc"]}}'
)
"""The declaration `tasks.list.filter` (F-FILTER-1)."""


def read_cursor(params: Members) -> str | None:
    """The cursor of a request for a page; None for the first page. An empty string is a cursor."""
    if "cursor" not in params:
        return None
    return required_string(params, "cursor", "The cursor")


def read_listing(params: Members) -> tuple[TaskFilter, TaskOrder]:
    """The filter and order of `tasks/list`. Raises InvalidParams for a criterion of a wrong
    shape.
    """
    found = _criteria(params)
    if not found:
        return ALL_TASKS, NEWEST_FIRST
    methods, ids, statuses = _values(found, "methods"), _values(found, "taskIds"), _values(found, "status")
    states = _states(statuses)
    if methods is not None and TOOLS_CALL not in methods:
        # Every task is of a call.
        states = frozenset()
    where = TaskFilter(
        ids=None if ids is None else frozenset(ids),
        states=states,
        created_after=_after(found, "createdAfter"),
        created_before=_before(found, "createdBefore"),
        updated_after=_after(found, "lastUpdatedAfter"),
        updated_before=_before(found, "lastUpdatedBefore"),
    )
    by = _choice(found, "orderBy", _ORDERS_BY, NEWEST_FIRST.by)
    return where, TaskOrder(by=by, descending=_choice(found, "order", _DIRECTIONS, NEWEST_FIRST.descending))


def _criteria(params: Members) -> dict[str, Any]:
    """The known criteria by name: those beside `filter`, replaced by those in it. Null ones are absent."""
    found = {name: member.value for name, member in params.items() if name in _CRITERIA}
    inner = value_of(params, "filter")
    if inner is not None and not isinstance(inner, dict):
        raise InvalidParams("filter must be an object")
    found |= {name: value for name, value in (inner or {}).items() if name in _CRITERIA and value is not None}
    return {name: value for name, value in found.items() if value is not None}


def _values(found: Mapping[str, Any], name: str) -> list[str] | None:
    """The list of strings of a criterion; None if it is not given."""
    if name not in found:
        return None
    values = found[name]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InvalidParams(f"{name} must be an array of strings")
    if len(values) > MAX_VALUES:
        raise InvalidParams(f"{name} must have at most {MAX_VALUES} values")
    return values


def _states(statuses: list[str] | None) -> frozenset[TaskState] | None:
    """The stored states that a host sees as one of these statuses; None if it gave none."""
    if statuses is None:
        return None
    if not _STATUSES.issuperset(statuses):
        raise InvalidParams(f"status must hold only {', '.join(TaskStatus)}")
    return frozenset(state for state in STATES if presented_status(state) in statuses)


def _choice(found: Mapping[str, Any], name: str, choices: Mapping[str, _Value], default: _Value) -> _Value:
    word = found.get(name)
    if name not in found:
        return default
    if not isinstance(word, str) or word not in choices:
        raise InvalidParams(f"{name} must be {' or '.join(choices)}")
    return choices[word]


# Hosts see times cut to the millisecond: "after" and "before" are relative to what they see.


def _after(found: Mapping[str, Any], name: str) -> datetime | None:
    """The time after which a stored time must be to look later to hosts; None without one."""
    if name not in found:
        return None
    millisecond, _ = _moment(found[name], name)
    return millisecond + _REST_OF_MILLISECOND


def _before(found: Mapping[str, Any], name: str) -> datetime | None:
    """The time before which a stored time must be to look earlier to hosts; None without one."""
    if name not in found:
        return None
    millisecond, is_later = _moment(found[name], name)
    return millisecond + _REST_OF_MILLISECOND + _TICK if is_later else millisecond


def _moment(text: object, name: str) -> tuple[datetime, bool]:
    """The start of the millisecond of a timestamp, in UTC, and whether the timestamp is later than
    that.
    """
    parts = _TIMESTAMP.fullmatch(text) if isinstance(text, str) else None
    if parts is not None:
        seconds, fraction, offset = parts.groups(default="")
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(f"{seconds}{offset}".upper()).astimezone(UTC)
            moment += timedelta(milliseconds=int(fraction[:3].ljust(3, "0")))
            # The end of the millisecond must be a valid date, too.
            _ = moment + 2 * _REST_OF_MILLISECOND
            return moment, bool(fraction[3:].strip("0"))
    raise InvalidParams(f"{name} must be a time with its offset, like 2026-01-31T12:00:00Z")


_CRITERIA: Final = frozenset(
    {
        "methods",
        "taskIds",
        "status",
        "createdAfter",
        "createdBefore",
        "lastUpdatedAfter",
        "lastUpdatedBefore",
        "orderBy",
        "order",
    }
)
_STATUSES: Final = frozenset(TaskStatus)
_ORDERS_BY: Final = {"createdAt": OrderBy.CREATED, "lastUpdatedAt": OrderBy.UPDATED}
_DIRECTIONS: Final = {"asc": False, "desc": True}
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,]([0-9]+))?([Zz]|[+-][0-9]{2}:?[0-9]{2})"
)
_TICK: Final = timedelta(microseconds=1)
_REST_OF_MILLISECOND: Final = timedelta(milliseconds=1) - _TICK
"""From the first microsecond of a millisecond to its last."""
