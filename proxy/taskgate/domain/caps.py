"""How much of one thing there may be at once: unfinished tasks, and bytes that are kept of tasks. Pure.

What must not live here: what is counted against a cap (the stores), and how a refusal is said.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache


class CapScope(StrEnum):
    """What a cap counts over: all records that share this with the one that is to be stored."""

    CONTEXT = "context"
    TENANT = "tenant"
    TOOL = "tool"
    """A tool of one upstream: the same name at another is another tool."""
    UPSTREAM = "upstream"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """At most `limit` unfinished, unexpired records that share `scope` with the one being inserted.

    With `bytes` it is what is kept of parameters and outcomes that counts, until it is purged, and nothing more is
    taken once that has reached `limit`; there it counts over CONTEXT or GLOBAL only. `place` is that of the scope among
    all scopes.
    """

    scope: CapScope
    limit: int
    bytes: bool = False
    place: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", list(CapScope).index(self.scope))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The operator's caps; None leaves something without one. `kept_…` are bytes."""

    tasks_per_context: int
    tasks_per_tenant: int | None = None
    tasks_per_tool: int | None = None
    tasks_per_upstream: int | None = None
    tasks_global: int | None = None
    kept_per_context: int | None = None
    kept_global: int | None = None

    def of(self, overrides: Mapping[str, int], tool_cap: int | None, has_tenant: bool) -> tuple[Cap, ...]:
        """What a new task is held against, from what concerns fewest to what concerns everybody.

        `overrides` are the caller's own limits under the names of the fields above. `tool_cap` is what a rule says of
        the tool itself and wins over them. A caller without a tenant takes no part in caps of tenants.
        """
        return _chosen(self, tuple(overrides.items()), tool_cap, has_tenant)


@lru_cache(maxsize=256)
def _chosen(
    caps: Caps, overrides: tuple[tuple[str, int], ...], tool_cap: int | None, has_tenant: bool
) -> tuple[Cap, ...]:
    mine = replace(caps, **dict(overrides)) if overrides else caps
    limits = (
        (CapScope.CONTEXT, mine.tasks_per_context, False),
        (CapScope.TENANT, mine.tasks_per_tenant if has_tenant else None, False),
        (CapScope.TOOL, mine.tasks_per_tool if tool_cap is None else tool_cap, False),
        (CapScope.UPSTREAM, mine.tasks_per_upstream, False),
        (CapScope.GLOBAL, mine.tasks_global, False),
        (CapScope.CONTEXT, mine.kept_per_context, True),
        (CapScope.GLOBAL, mine.kept_global, True),
    )
    return tuple(
        Cap(scope=scope, limit=limit, bytes=of_bytes) for scope, limit, of_bytes in limits if limit is not None
    )
