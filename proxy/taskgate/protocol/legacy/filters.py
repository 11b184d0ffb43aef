"""Reading what a host filters and orders its list of tasks by: SEP-1904, F-FILTER-*.

A criterion stands in `params.filter` or beside it; where it stands in both, the one in `filter` counts (AMB-5). One
that we do not know is ignored, one of a wrong shape refused. A list of values lets through what meets any of them, and
one without values lets nothing through. A time has a date, a time of day and an offset or `Z`: one without an offset is
refused, since whose clock it is of could only be guessed.
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
from taskgate.protocol.vocabulary import TOOLS_CALL

_Value = TypeVar("_Value")

MAX_VALUES: Final = 1_000
"""How many values one criterion may have."""

FILTER_CAPABILITY: Final = (
    '{"methods":["tools/call"],"taskIds":true,"status":true,"createdAt":{"before":true,"after":true},'
    '"lastUpdatedAt":{"before":true,"after":true},'
    '"order":{"by":["createdAt","lastUpdatedAt"],"direction":["asc","desc"]}}'
)
"""What is declared as `tasks.list.filter` (F-FILTER-1)."""


def listing_of(params: Members) -> tuple[TaskFilter, TaskOrder]:
    """Which tasks a host wants listed, and how. Raises InvalidParams for a criterion of a wrong shape."""
    found = _criteria(params)
    if not found:
        return ALL_TASKS, NEWEST_FIRST
    methods, ids, words = _values(found, "methods"), _values(found, "taskIds"), _values(found, "status")
    states = _states(words)
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
    found = {name: member.value for name, member in params.items() if name in _CRITERIA}
    inner = params.get("filter")
    if inner is None:
        return found
    if not isinstance(inner.value, dict):
        raise InvalidParams("filter must be an object")
    return found | {name: value for name, value in inner.value.items() if name in _CRITERIA}


def _values(found: Mapping[str, Any], name: str) -> list[str] | None:
    if name not in found:
        return None
    values = found[name]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InvalidParams(f"{name} must be an array of strings")
    if len(values) > MAX_VALUES:
        raise InvalidParams(f"{name} must have at most {MAX_VALUES} values")
    return values


def _states(words: list[str] | None) -> frozenset[TaskState] | None:
    if words is None:
        return None
    if not _STATUSES.issuperset(words):
        raise InvalidParams(f"status must hold only {', '.join(TaskStatus)}")
    return frozenset(state for state in STATES if presented_status(state) in words)


def _choice(found: Mapping[str, Any], name: str, choices: Mapping[str, _Value], usual: _Value) -> _Value:
    word = found.get(name)
    if name not in found:
        return usual
    if not isinstance(word, str) or word not in choices:
        raise InvalidParams(f"{name} must be {' or '.join(choices)}")
    return choices[word]


# Hosts see times cut off to the millisecond, and mean "after" and "before" of what they see.


def _after(found: Mapping[str, Any], name: str) -> datetime | None:
    if name not in found:
        return None
    millisecond, _ = _moment(found[name], name)
    return millisecond + _TO_ITS_END


def _before(found: Mapping[str, Any], name: str) -> datetime | None:
    if name not in found:
        return None
    millisecond, is_later = _moment(found[name], name)
    return millisecond + _TO_ITS_END + _TICK if is_later else millisecond


def _moment(text: object, name: str) -> tuple[datetime, bool]:
    """The beginning of the millisecond that a timestamp is in, in UTC, and whether it is later than that."""
    parts = _TIMESTAMP.fullmatch(text) if isinstance(text, str) else None
    if parts is not None:
        seconds, fraction, offset = parts.groups(default="")
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(f"{seconds}{offset}".upper()).astimezone(UTC)
            # A millisecond must be left after it, or there is no end to tell.
            moment += timedelta(milliseconds=int(fraction[:3].ljust(3, "0")))
            _ = moment + 2 * _TO_ITS_END
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
_TO_ITS_END: Final = timedelta(milliseconds=1) - _TICK
"""From the first of a millisecond's moments to its last."""
