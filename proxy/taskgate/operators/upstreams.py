"""The routes about upstreams: list, show, hold, release, and the last hour. `UpstreamRoutes` has their handlers.

All of it is of the replica that answers. A hold lasts until a release or the end of the process.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from taskgate.admission.mounts import Mount, Mounts
from taskgate.clock import Clock
from taskgate.operators.access import ApiError, Role
from taskgate.operators.routes import Answer, ApiCall, Route
from taskgate.telemetry.history import MINUTES, History
from taskgate.telemetry.upstream_condition import UpstreamState
from taskgate.telemetry.upstream_states import UpstreamStates

Counts = Callable[[], Mapping[tuple[str], int]]
"""Returns a number for each upstream that has any, by its name."""


class UpstreamItem(Answer):
    """An upstream, as this replica sees it."""

    name: str
    path: Annotated[str, Field(description="The path that hosts use.")]
    server: Annotated[str, Field(description="The origin of its URL, or its program.")]
    state: Annotated[
        UpstreamState | None,
        Field(description="How it is, from its latest calls and checks; null while nothing is known."),
    ]
    cause: Annotated[str | None, Field(description="Why it is down or refusing; null if it is neither.")]
    since: Annotated[
        datetime | None,
        Field(description="When the failures began that go on; null without any."),
    ]
    recent_requests: Annotated[int, Field(description="Requests of hosts that ended in the last five minutes.")]
    recent_failures: Annotated[int, Field(description="Those of them that the server did not serve.")]
    is_up: Annotated[bool | None, Field(description="Whether it is healthy; null while that is unknown.")]
    circuit: Literal["closed", "open", "half_open"]
    circuit_reason: Annotated[
        str | None, Field(description="Whom the circuit refuses, and the latest failure; null while it is closed.")
    ]
    is_held: Annotated[bool, Field(description="Whether an operator holds it at this replica.")]
    calls: Annotated[int, Field(description="Calls that run: permits in use.")]
    limit: Annotated[int, Field(description="The most calls at once.")]
    waiting: Annotated[int, Field(description="Calls that wait for a permit.")]
    reserved: Annotated[int, Field(description="Permits for callers without a running call.")]
    lent: Annotated[int, Field(description="Reserved permits that a caller gets now, as it calls alone.")]
    tasks: Annotated[int, Field(description="Calls of tasks among those that run.")]
    requests: Annotated[int, Field(description="Requests to the server without an answer yet.")]
    processes: Annotated[
        int | None, Field(description="Programs of the server that run or start; null unless its transport is stdio.")
    ]
    offers_tasks: bool


class UpstreamList(Answer):
    """All upstreams, by name."""

    replica: Annotated[str, Field(description="The replica that answers.")]
    items: tuple[UpstreamItem, ...]


class UpstreamDetail(UpstreamItem):
    """An upstream, and the replica that answers."""

    replica: str


_PerMinute = Annotated[tuple[int, ...], Field(description=f"One for each of {MINUTES} minutes, the newest last.")]


class UpstreamHour(Answer):
    """The last hour of an upstream."""

    name: str
    requests: _PerMinute
    failures: Annotated[tuple[int, ...], Field(description="Those of them that the server did not serve.")]
    recent_p95_seconds: Annotated[
        float | None,
        Field(description="What 95 of 100 calls of the last five minutes did not exceed; null without calls."),
    ]


class HistoryAnswer(Answer):
    """The last hour of the replica that answers. A minute is of the 60 seconds up to now, and those before."""

    now: datetime
    replica: str
    requests: _PerMinute
    failures: Annotated[tuple[int, ...], Field(description="Requests that a server did not serve.")]
    refusals: Annotated[tuple[int, ...], Field(description="Requests that the gateway refused.")]
    unfinished: Annotated[tuple[int, ...], Field(description="The most tasks of the minute that had not ended here.")]
    waiting: Annotated[tuple[int, ...], Field(description="The most calls of the minute that waited for a permit.")]
    p95_seconds: Annotated[
        tuple[float | None, ...],
        Field(description="What 95 of 100 calls did not exceed; null in a minute without calls."),
    ]
    recent_p95_seconds: Annotated[float | None, Field(description="The same of the last five minutes.")]
    upstreams: Annotated[tuple[UpstreamHour, ...], Field(description="The hour of each upstream, by name.")]


class UpstreamRoutes:
    """The handlers. `replica` is the name of this process."""

    def __init__(
        self,
        *,
        mounts: Mounts,
        states: UpstreamStates,
        history: History,
        requests: Counts,
        tasks: Counts,
        clock: Clock,
        replica: str,
    ) -> None:
        self._mounts = mounts
        self._states = states
        self._history = history
        self._clock = clock
        self._requests = requests
        self._tasks = tasks
        self._replica = replica

    def routes(self) -> Iterator[Route]:
        """The routes of upstreams."""
        yield Route(
            method="GET",
            path="/upstreams",
            summary="List upstreams",
            description="Health and load of each upstream at this replica.",
            role=Role.VIEWER,
            answer=UpstreamList,
            handler=self._list,
        )
        yield Route(
            method="GET",
            path="/upstreams/{name}",
            summary="Show an upstream",
            description="Health and load of one upstream at this replica.",
            role=Role.VIEWER,
            answer=UpstreamDetail,
            handler=self._show,
            refusals={404: _UNKNOWN},
        )
        yield Route(
            method="GET",
            path="/history",
            summary="Show the last hour",
            description="Numbers of the last hour at this replica, minute by minute. They are in memory alone.",
            role=Role.VIEWER,
            answer=HistoryAnswer,
            handler=self._show_history,
        )
        yield Route(
            method="POST",
            path="/upstreams/{name}/hold",
            summary="Hold an upstream",
            description="This replica refuses new tool calls to it. Running calls go on, and waiting ones wait.",
            role=Role.OPERATOR,
            answer=UpstreamDetail,
            handler=self._hold,
            refusals={404: _UNKNOWN},
        )
        yield Route(
            method="POST",
            path="/upstreams/{name}/release",
            summary="Release an upstream",
            description="Ends a hold at this replica.",
            role=Role.OPERATOR,
            answer=UpstreamDetail,
            handler=self._release,
            refusals={404: _UNKNOWN},
        )

    async def _list(self, _call: ApiCall) -> UpstreamList:
        items = tuple(self.item(mount) for _, mount in sorted(self._mounts.by_name.items()))
        return UpstreamList(replica=self._replica, items=items)

    async def _show(self, call: ApiCall) -> UpstreamDetail:
        return UpstreamDetail(replica=self._replica, **dict(self.item(self._found(call))))

    async def _show_history(self, _call: ApiCall) -> HistoryAnswer:
        known_of = {name: self._states.history(name) for name in sorted(self._mounts.by_name)}
        # After the events were read that the states ask for, so that the newest refusals count.
        at, history, total = self._history.take(), self._history, self._states.total
        hours = []
        for name, known in known_of.items():
            hours.append(
                UpstreamHour(
                    name=name,
                    requests=tuple(known.requests.minutes(at)),
                    failures=tuple(known.failures.minutes(at)),
                    recent_p95_seconds=known.durations.high(at),
                )
            )
        return HistoryAnswer(
            now=self._clock.now(),
            replica=self._replica,
            requests=tuple(total.requests.minutes(at)),
            failures=tuple(total.failures.minutes(at)),
            refusals=tuple(history.refusals.minutes(at)),
            unfinished=tuple(history.unfinished.minutes(at)),
            waiting=tuple(history.waiting.minutes(at)),
            p95_seconds=tuple(total.durations.minutes(at)),
            recent_p95_seconds=total.durations.high(at),
            upstreams=tuple(hours),
        )

    async def _hold(self, call: ApiCall) -> UpstreamDetail:
        self._found(call).bulkhead.hold(True)
        return await self._show(call)

    async def _release(self, call: ApiCall) -> UpstreamDetail:
        self._found(call).bulkhead.hold(False)
        return await self._show(call)

    def _found(self, call: ApiCall) -> Mount:
        mount = self._mounts.by_name.get(call.parameters["name"])
        if mount is None:
            raise ApiError(404, "upstream_not_found", "there is no upstream of that name")
        return mount

    def item(self, mount: Mount) -> UpstreamItem:
        """What a list shows of an upstream."""
        vitals, bulkhead, key = mount.upstream.vitals(), mount.bulkhead, (mount.name,)
        reserved, lent = bulkhead.reserved
        view = self._states.view(mount.name, is_held=bulkhead.is_held)
        return UpstreamItem.model_validate(
            {
                "name": mount.name,
                "path": mount.path,
                "server": mount.server,
                "state": view.state,
                "cause": view.cause,
                "since": view.since,
                "recent_requests": view.requests,
                "recent_failures": view.failures,
                "is_up": vitals.up,
                "circuit": vitals.circuit,
                "circuit_reason": vitals.circuit_reason,
                "is_held": bulkhead.is_held,
                "calls": bulkhead.in_use,
                "limit": bulkhead.limit,
                "waiting": bulkhead.queued,
                "reserved": reserved,
                "lent": lent,
                "tasks": self._tasks().get(key, 0),
                "requests": self._requests().get(key, 0),
                "processes": vitals.processes,
                "offers_tasks": mount.offers_tasks,
            }
        )


_UNKNOWN: Final = "There is no upstream of that name."
