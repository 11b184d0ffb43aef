"""The routes about tasks: list, show, cancel. `TaskRoutes` has their handlers.

A task is named by its public reference, and its id leaves the process in no answer. A caller is
named by the reference of the audit log too. No answer but that of `/payload` contains arguments,
results, questions or answers.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import ConfigDict, Field, StringConstraints
from pydantic.config import JsonDict

from taskgate.admission.concurrency import queue_position
from taskgate.clock import Clock
from taskgate.domain.events import CancelRequested
from taskgate.domain.record import (
    CallerNames,
    Faulted,
    FaultReason,
    TaskId,
    TaskRecord,
    TaskStatus,
    outcome_text,
)
from taskgate.errors import StoreUnavailable
from taskgate.jsontext.display import one_line
from taskgate.jsontext.large import JsonChunks, LargeJson
from taskgate.jsontext.spans import RawJson, members
from taskgate.lifecycle.runner import Runner
from taskgate.lifecycle.transitions import Transitions
from taskgate.operators.access import ApiError, OperatorAccess, Role
from taskgate.operators.cursors import ListCursors, ListQuery
from taskgate.operators.routes import (
    CALLER_FILTER,
    CALLER_PREFIX,
    FORBIDDEN,
    NUMBER,
    UNAVAILABLE,
    WHOLE,
    Answer,
    ApiCall,
    CallerName,
    EventStream,
    NamedAnswer,
    Query,
    Route,
    Text,
    caller_reference,
    is_caller,
    names_of,
)
from taskgate.stores.base import MOST_SCANNED, TaskStore
from taskgate.stores.codec import text_in_head
from taskgate.stores.references import ReferenceOf
from taskgate.system.offload import offload
from taskgate.telemetry.events import AuditCapacity, TaskCancelRequested

MAX_BULK: Final = 1000
"""The most tasks that one request cancels."""
MAX_REASON: Final = 200
"""The most characters of the reason of a cancel."""
_AT_ONCE: Final = 32
"""Tasks of one request that are cancelled at the same time."""
_MOST_PARTS: Final = 10
"""Parts of a scan for one request: 100,000 unfinished tasks."""
MOST_PAYLOADS: Final = 4
"""The most payloads that are sent at once: each is in memory until its reader has it."""
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_TICK: Final = timedelta(microseconds=1)
_LONGEST_AGE: Final = 10 * 365 * 86_400
_REFERENCE: Final = r"^t_[A-Za-z0-9_-]{0,22}$"


class TaskSort(StrEnum):
    """The orders of a list; `-` means the newest first. Lists with ended tasks have NEWEST alone."""

    CREATED = "created"
    NEWEST = "-created"
    UPDATED = "updated"
    LAST_UPDATED = "-updated"


class TaskSelection(Query):
    """Which tasks are meant. All given parameters must match."""

    upstream: Annotated[Text | None, Field(description="The name of the upstream.")] = None
    tool: Annotated[Text | None, Field(description="The name of the tool.")] = None
    tenant: Annotated[CallerName | None, Field(description="The tenant of the caller.")] = None
    client: Annotated[CallerName | None, Field(description="The client of the caller.")] = None
    issuer: Annotated[Text | None, Field(description="The name of the caller's issuer in the configuration.")] = None
    caller: Annotated[CallerName | None, Field(description=CALLER_FILTER)] = None
    status: Annotated[
        tuple[TaskStatus, ...],
        Field(
            description="The statuses, separated by commas; none means all. A task whose tool returned an error counts "
            "as failed.",
            max_length=5,
        ),
    ] = ()
    reference: Annotated[
        Annotated[str, StringConstraints(pattern=_REFERENCE)] | None,
        Field(description="The beginning of the reference, `t_…`."),
    ] = None
    older_than: Annotated[
        float | None, Field(ge=0, le=_LONGEST_AGE, description="Seconds since the creation, at least."), NUMBER
    ] = None
    younger_than: Annotated[
        float | None, Field(ge=0, le=_LONGEST_AGE, description="Seconds since the creation, at most."), NUMBER
    ] = None

    @property
    def is_unfinished(self) -> bool:
        """Whether only tasks that have not ended match."""
        return bool(self.status) and not any(status.is_terminal for status in self.status)

    @property
    def texts(self) -> tuple[bytes, ...]:
        """Bytes that each task has in its head, or in the names of its caller, that matches."""
        # The head of a tool's error has another status than it counts as.
        one = self.status[0] if len(self.status) == 1 else None
        status = None if one is None or one is TaskStatus.FAILED else one.value
        given = (self.upstream, self.tool, self.tenant, self.client, self.issuer, status)
        found = [None if text is None else text_in_head(text) for text in given]
        if self.caller is not None:
            # A name may begin as a reference does: what is behind that is in both, up to the quotation mark.
            rest = text_in_head(self.caller.removeprefix(CALLER_PREFIX))
            found.append(None if rest is None else rest[1:])
        return tuple(text for text in found if text is not None)

    def matcher(
        self, reference_of: ReferenceOf, now: datetime, seen: Callable[[CallerNames | None], CallerNames | None]
    ) -> Callable[[TaskRecord], bool]:
        """The function that tells whether a task matches now. It may run on another thread.

        `seen` returns the names of a caller that operators see.
        """
        oldest = None if self.younger_than is None else now - timedelta(seconds=self.younger_than)
        newest = None if self.older_than is None else now - timedelta(seconds=self.older_than)

        def matches(record: TaskRecord) -> bool:
            return (
                (self.upstream is None or record.owner.mount == self.upstream)
                and (not self.status or _outward_status(record) in self.status)
                and (self.tool is None or record.call.tool == self.tool)
                and self._matches_names(record, seen(record.caller))
                and (newest is None or record.created_at <= newest)
                and (oldest is None or record.created_at >= oldest)
                and (self.reference is None or reference_of(record.id).startswith(self.reference))
            )

        return matches

    def _matches_names(self, record: TaskRecord, names: CallerNames | None) -> bool:
        """Whether the caller of a task matches, whom operators see under these names."""
        return (
            (self.caller is None or is_caller(self.caller, record.owner.context, names))
            and (self.tenant is None or _tenant(record, names) == self.tenant)
            and (self.client is None or (names is not None and names.client == self.client))
            and (self.issuer is None or (names is not None and names.issuer == self.issuer))
        )


class TaskListQuery(TaskSelection, ListQuery):
    """Which tasks a list has, their order, and the page."""

    sort: Annotated[
        TaskSort | None,
        Field(description="The order: newest first by default; others if `status` has only working, input_required."),
    ] = None


def _given(name: str, schema: JsonDict) -> JsonDict:
    """The schema of an object that has a member of that schema."""
    return {"required": [name], "properties": {name: schema}}


_CONFIRMED: Final[JsonDict] = {
    "allOf": [_given("confirm", {"type": "integer"}), _given("selection", {"type": "string"})]
}
"""A body that repeats what a dry run answered."""


CancelReason = Annotated[
    Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_REASON)] | None,
    Field(description="Why, for the host and the audit log."),
]


class TaskCancel(Query):
    """The body of a cancel."""

    reason: CancelReason = None


class BulkCancel(TaskSelection):
    """Which unfinished tasks are to be cancelled. At least one parameter must select them."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                {"anyOf": [_given(name, {"not": {"enum": [None, []]}}) for name in TaskSelection.model_fields]},
                {"anyOf": [_given("dry_run", {"const": True}), _CONFIRMED]},
            ]
        }
    )

    reason: CancelReason = None
    dry_run: Annotated[bool, Field(description="true: only count the tasks.")] = False
    confirm: Annotated[
        int | None, Field(ge=0, description="The number of tasks that `dry_run` counted; needed without it."), WHOLE
    ] = None
    selection: Annotated[
        Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None,
        Field(description="The `selection` that `dry_run` answered; needed without it."),
    ] = None

    @property
    def selects(self) -> bool:
        """Whether any parameter selects tasks; `selection` only repeats an answer."""
        return any(getattr(self, name) not in (None, ()) for name in TaskSelection.model_fields)


class TaskItem(NamedAnswer):
    """A task in a list."""

    reference: Annotated[str, Field(description="The public reference, as in the audit log.")]
    upstream: str
    tool: str
    status: TaskStatus
    tool_error: Annotated[bool, Field(description="Whether the result is an error of the tool.")]
    reason: Annotated[
        FaultReason | Literal["tool_error"] | None,
        Field(description="Why it failed, in a word; null if it did not, or if that is not known."),
    ]
    is_queued: Annotated[bool, Field(description="Whether the call waits for a permit, and is not sent.")]
    queue_position: Annotated[int | None, Field(description="Calls that are sent before it, as last stored.")]
    progress: Annotated[
        str | None, Field(description="What the server last said of its progress, while the task runs.")
    ]
    caller: Annotated[str, Field(description="The reference of the caller.")]
    created_at: datetime
    updated_at: Annotated[datetime, Field(description="The last change: of the status, or of what the server said.")]
    ended_at: Annotated[datetime | None, Field(description="When it ended; null while it runs.")]
    expires_at: datetime
    replica: Annotated[str | None, Field(description="The replica that has the lease, while the task runs.")]
    is_retrieved: Annotated[bool, Field(description="Whether the caller has fetched the result.")]


class TaskPage(Answer):
    """A page of tasks."""

    now: Annotated[datetime, Field(description="The time of the answer, by which ages count.")]
    items: tuple[TaskItem, ...]
    next: Annotated[str | None, Field(description="The cursor of the next page; null on the last one.")]
    is_complete: Annotated[bool, Field(description="False if there are more tasks than are sorted together: 10,000.")]


class TaskTransition(Answer):
    """A status of a task, and when it began."""

    status: TaskStatus
    time: datetime


class TaskLease(Answer):
    """The replica that runs the call, and until when without a heartbeat."""

    replica: str
    until: datetime


class TaskFailure(Answer):
    """Why a task failed. `message` is null if the server wrote it: that may be a payload."""

    reason: FaultReason
    message: str | None


class TaskHost(Answer):
    """The host that made the call, as it declared itself."""

    name: str | None
    version: str | None
    revision: str


class TaskDetail(TaskItem):
    """A task, without arguments and result."""

    timeline: Annotated[
        tuple[TaskTransition, ...], Field(description="The statuses, oldest first: the first and the newest 15.")
    ]
    dispatched_at: Annotated[
        datetime | None,
        Field(description="When the call was first sent, if it had to wait for a permit; null if that was at once."),
    ]
    lease: TaskLease | None
    failure: TaskFailure | None
    host: TaskHost
    questions: Annotated[tuple[str, ...], Field(description="The methods of the open input requests.")]
    poll_interval_seconds: float
    reruns_left: Annotated[int, Field(description="How often the call may be sent again after a crash.")]
    is_resumable: Annotated[bool, Field(description="Whether another process can resume the call.")]
    trace_id: str | None
    may_show_payload: Annotated[
        bool, Field(description="Whether this token may read the payload: `admin.payloads`, and role operator.")
    ]


class PartState(StrEnum):
    """Whether a part of a payload is shown, or why not.

    `none`: the task has no such part; `pending`: the task has not ended; `not_stored`: the store has
    lost it.
    """

    SHOWN = "shown"
    NONE = "none"
    PENDING = "pending"
    NOT_STORED = "not_stored"


class PayloadText(Answer):
    """A JSON value, byte for byte as the store has it."""

    bytes: Annotated[int | None, Field(description="The size of `value`; null if it is not shown.")]
    value: Any


class PayloadPart(PayloadText):
    """A part of a payload, or why it is not shown. Then `value` is null."""

    state: PartState


class PayloadQuestion(PayloadText):
    """An open input request: its parameters."""

    key: str
    method: str


class PayloadAnswer(PayloadText):
    """An answer of the host to an input request."""

    key: str


class TaskPayload(Answer):
    """The payload of a task."""

    reference: str
    upstream: str
    tool: str
    status: TaskStatus
    arguments: Annotated[PayloadPart, Field(description="The arguments of the call.")]
    result: Annotated[PayloadPart, Field(description="The result of the server.")]
    error: Annotated[PayloadPart, Field(description="The JSON-RPC error that the task ended with.")]
    questions: Annotated[tuple[PayloadQuestion, ...], Field(description="The open input requests.")]
    answers: Annotated[
        tuple[PayloadAnswer, ...], Field(description="The answers that the server may still need; others are gone.")
    ]


class BulkCancelled(Answer):
    """The outcome for the tasks that matched."""

    matched: int
    cancelled: int
    ended: Annotated[int, Field(description="Tasks that ended by themselves meanwhile.")]
    failed: Annotated[int, Field(description="Tasks that the store could not change: send the request again.")]
    references: Annotated[tuple[str, ...], Field(description="The tasks that matched.")]
    selection: Annotated[
        str, Field(description="The SHA-256 of their sorted references, each with a line feed behind it, in hex.")
    ]


class TaskRoutes:
    """The handlers. `store` and `transitions` are those that hosts use.

    `access` tells whether payloads are shown. Each look at one waits for room in `audit_capacity`.
    """

    def __init__(
        self,
        *,
        store: TaskStore,
        transitions: Transitions,
        runner: Runner,
        reference_of: ReferenceOf,
        cursors: ListCursors,
        clock: Clock,
        access: OperatorAccess,
        audit_capacity: AuditCapacity,
    ) -> None:
        self._store = store
        self._transitions = transitions
        self._runner = runner
        self._reference_of = reference_of
        self._cursors = cursors
        self._clock = clock
        self._access = access
        self._audit_capacity = audit_capacity
        self._payloads = asyncio.Semaphore(MOST_PAYLOADS)

    def routes(self) -> Iterator[Route]:
        """The routes of tasks."""
        yield Route(
            method="GET",
            path="/tasks",
            summary="List tasks",
            description="Tasks of all callers that have not expired. A page may be short, or empty, and still have a "
            "next one. A task that ends meanwhile may be on two pages.",
            role=Role.VIEWER,
            query=TaskListQuery,
            answer=TaskPage,
            handler=self._list,
        )
        yield Route(
            method="GET",
            path="/tasks/{reference}",
            summary="Show a task",
            description="One task, with the times of its statuses.",
            role=Role.VIEWER,
            answer=TaskDetail,
            handler=self._show,
            refusals={404: _UNKNOWN},
        )
        yield Route(
            method="GET",
            path="/tasks/{reference}/payload",
            summary="Read the payload of a task",
            description="The arguments, the result or the error, the open input requests and their answers, as far as "
            "the store has them. Needs `admin.payloads`. Each request is a line of the audit log.",
            role=Role.OPERATOR,
            answer=TaskPayload,
            handler=self._show_payload,
            is_audited=True,
            refusals={403: f"`admin.payloads` is false. {FORBIDDEN}", 404: _UNKNOWN, 503: f"{UNAVAILABLE} {_NO_ROOM}"},
        )
        yield Route(
            method="POST",
            path="/tasks/{reference}/cancel",
            summary="Cancel a task",
            description="The host sees a cancelled task, and that an operator cancelled it, with the `reason`. The "
            "replica that runs the call cancels it at the server.",
            role=Role.OPERATOR,
            body=TaskCancel,
            needs_body=False,
            answer=TaskItem,
            handler=self._cancel,
            refusals={404: _UNKNOWN, 409: "The task has already ended."},
        )

        yield Route(
            method="POST",
            path="/tasks/cancel",
            summary="Cancel many tasks",
            description="Cancels the unfinished tasks that match. `dry_run` counts them; then `confirm` repeats the "
            "number, and `selection` repeats that member of the answer. "
            f"At most {MAX_BULK} tasks are cancelled at once.",
            role=Role.OPERATOR,
            body=BulkCancel,
            answer=BulkCancelled,
            handler=self._cancel_many,
            refusals={409: "Other tasks match than `confirm` and `selection` say, or too many."},
        )

    async def _list(self, call: ApiCall) -> TaskPage:
        query: TaskListQuery = call.query
        if query.sort not in (None, TaskSort.NEWEST) and not query.is_unfinished:
            text = "sort: needs status=working,input_required; other lists have the newest first"
            raise ApiError(400, "invalid_query", text)
        place = None if query.cursor is None else self._cursors.open(query.cursor, query.listing)
        return await (self._sorted(query, place) if query.is_unfinished else self._stored(query, place))

    async def _sorted(self, query: TaskListQuery, place: list[Any] | None) -> TaskPage:
        """A page of unfinished tasks, in the order of a time. Their number is bounded by the caps."""
        now = self._clock.now()
        part = await self._store.scan(
            unfinished=True,
            wants=query.matcher(self._reference_of, now, self._access.names),
            after=None,
            limit=MOST_SCANNED,
            now=now,
            texts=query.texts,
        )
        sort = query.sort or TaskSort.NEWEST
        is_by_creation, is_descending = sort.endswith("created"), sort.startswith("-")
        # A record may be found twice. Equal times are told apart by the reference.
        found = {record.id: record for record in part.heads}
        rows = [(_ticks(each.created_at if is_by_creation else each.updated_at), each) for each in found.values()]
        keyed = [((ticks, self._reference_of(each.id)), each) for ticks, each in rows]
        if place is not None:
            edge = (place[0], place[1])
            keyed = [row for row in keyed if (row[0] < edge if is_descending else row[0] > edge)]
        keyed.sort(key=lambda row: row[0], reverse=is_descending)
        page = keyed[: query.limit]
        following = self._cursors.seal(list(page[-1][0]), query.listing) if len(keyed) > query.limit else None
        items = tuple([self.item(record) for _, record in page])
        return TaskPage(now=now, items=items, next=following, is_complete=part.next is None)

    async def _stored(self, query: TaskListQuery, place: list[Any] | None) -> TaskPage:
        """A page of tasks as the store finds them: the newest first."""
        now = self._clock.now()
        part = await self._store.scan(
            unfinished=False,
            wants=query.matcher(self._reference_of, now, self._access.names),
            after=None if place is None else place[0],
            limit=query.limit,
            now=now,
            texts=query.texts,
        )
        following = None if part.next is None else self._cursors.seal([part.next], query.listing)
        items = tuple([self.item(await self._with_fault(head)) for head in part.heads])
        return TaskPage(now=now, items=items, next=following, is_complete=part.in_order)

    async def _with_fault(self, head: TaskRecord) -> TaskRecord:
        """The record with its outcome, if it failed: no head has the reason. Others as they are."""
        if head.status is not TaskStatus.FAILED:
            return head
        return await self._store.load(head.owner, head.id, now=self._clock.now(), bodies=True) or head

    async def _show(self, call: ApiCall) -> TaskDetail:
        record = await self._found(call.parameters["reference"])
        changes = await self._store.transitions(record.id)
        lease, is_running = record.lease, not record.status.is_terminal
        peer, outcome = record.call.peer, record.outcome
        return TaskDetail(
            **dict(self.item(record)),
            timeline=tuple(TaskTransition(status=change.status, time=change.time) for change in changes),
            dispatched_at=record.dispatched_at,
            lease=TaskLease(replica=lease.holder, until=lease.until) if lease is not None and is_running else None,
            failure=_failure(record, outcome) if isinstance(outcome, Faulted) else None,
            host=TaskHost(
                name=_text(peer.info.get("name")),
                version=_text(peer.info.get("version")),
                revision=peer.revision.value,
            ),
            questions=tuple(asked.method for asked in record.inputs),
            poll_interval_seconds=record.poll_interval.total_seconds(),
            reruns_left=record.reruns,
            is_resumable=is_running and record.is_resumable,
            trace_id=None if record.trace is None else record.trace.split("-")[1],
            may_show_payload=self._access.shows_payloads and call.operator.may(Role.OPERATOR),
        )

    async def _show_payload(self, call: ApiCall) -> EventStream:
        if not self._access.shows_payloads:
            raise ApiError(403, "payloads_off", "no payload is shown: admin.payloads is false in the configuration")
        if self._audit_capacity.is_full and not await self._audit_capacity.room():
            raise ApiError(
                503, "audit_full", "the audit log has no room for the line of this look: try again", **_RETRY
            )
        head = await self._found(call.parameters["reference"])
        call.shown.append(head)
        stream = self._payload(head)
        # The first part is empty. Before it the payload is read, or the request refused.
        await anext(stream)
        return stream

    async def _payload(self, head: TaskRecord) -> EventStream:
        """The document of a payload in parts, after an empty one. Raises ApiError before that."""
        if self._payloads.locked():
            text = f"{MOST_PAYLOADS} payloads are being sent: try again"
            raise ApiError(503, "too_many_payloads", text, **_RETRY)
        async with self._payloads:
            record = await self._store.load(head.owner, head.id, now=self._clock.now(), bodies=True)
            if record is None:
                raise _not_found()
            work = partial(_payload_of, self.item(record), record)
            chunks = await offload(len(record.call.params or ""), work)
            yield b""
            for window in chunks.windows():
                yield bytes(window)

    async def _cancel(self, call: ApiCall) -> TaskItem:
        while True:
            record = await self._found(call.parameters["reference"])
            cancelled = await self.cancel(record, call.operator.name, call.body.reason)
            if cancelled is not None:
                return self.item(cancelled)
            # The record has changed since it was read.

    async def _cancel_many(self, call: ApiCall) -> BulkCancelled:
        body: BulkCancel = call.body
        if not body.selects:
            raise ApiError(400, "invalid_body", "give at least one parameter that selects tasks, such as upstream")
        if not body.dry_run and body.confirm is None:
            raise ApiError(400, "invalid_body", "confirm: must be the number of tasks, which dry_run counts")
        if not body.dry_run and body.selection is None:
            raise ApiError(400, "invalid_body", "selection: must be that of the answer to dry_run")
        call.details["dry_run"] = body.dry_run
        records = await self._unfinished(body)
        call.details["matched"] = len(records)
        references = tuple(self._reference_of(record.id) for record in records)
        selection = sha256("".join(f"{each}\n" for each in sorted(references)).encode()).hexdigest()
        if not body.dry_run and body.confirm != len(records):
            raise ApiError(409, "count_differs", f"{len(records)} tasks match now, not {body.confirm}")
        if not body.dry_run and body.selection != selection:
            raise ApiError(409, "selection_differs", "other tasks match now: count them again with dry_run")
        counts = Counter[str]()
        for start in range(0, 0 if body.dry_run else len(records), _AT_ONCE):
            some = records[start : start + _AT_ONCE]
            ends = (self._cancel_one(record, call.operator.name, body.reason) for record in some)
            counts.update(await asyncio.gather(*ends))
        call.details["cancelled"] = counts["cancelled"]
        return BulkCancelled(
            matched=len(records),
            cancelled=counts["cancelled"],
            ended=counts["ended"],
            failed=counts["failed"],
            references=references,
            selection=selection,
        )

    async def _unfinished(self, selection: TaskSelection) -> list[TaskRecord]:
        """All unfinished tasks that match. Raises ApiError (409) for more than MAX_BULK."""
        now = self._clock.now()
        wants, texts = selection.matcher(self._reference_of, now, self._access.names), selection.texts
        found: dict[str, TaskRecord] = {}
        after: str | None = None
        for _ in range(_MOST_PARTS):
            part = await self._store.scan(
                unfinished=True, wants=wants, after=after, limit=MAX_BULK + 1, now=now, texts=texts
            )
            found.update((record.id, record) for record in part.heads)
            after = part.next
            if after is None or len(found) > MAX_BULK:
                break
        if after is not None or len(found) > MAX_BULK:
            raise ApiError(409, "too_many_tasks", f"more than {MAX_BULK} tasks match, or too many run: select fewer")
        return list(found.values())

    async def _cancel_one(self, record: TaskRecord, operator: str, reason: str | None) -> str:
        """Cancel a task that was read, and return what became of it."""
        try:
            while await self.cancel(record, operator, reason) is None:
                again = await self._store.load(record.owner, record.id, now=self._clock.now())
                if again is None:
                    return "ended"
                record = again
        except ApiError:
            return "ended"
        except StoreUnavailable:
            return "failed"
        return "cancelled"

    async def cancel(
        self, record: TaskRecord, operator: str | None = None, reason: str | None = None
    ) -> TaskRecord | None:
        """Cancel a task that was read, and return its record; None if it has changed meanwhile.

        `operator` is the name of the token, for the audit log alone. `reason` is for the host, too.
        The process that runs the call learns of it from the store. Raises ApiError (409) if it had
        ended.
        """
        if record.status.is_terminal:
            raise ApiError(409, "already_ended", "the task has already ended")
        reason = None if reason is None else one_line(reason, MAX_REASON)
        event = CancelRequested(by="operator", reason=reason)
        asked = TaskCancelRequested(record, "propagated", operator, reason)
        cancelled = await self._transitions.apply(record, event, self._clock.now(), announce=asked)
        if cancelled is not None:
            await self._runner.stop_run(cancelled.id)
        return cancelled

    async def _found(self, reference: str) -> TaskRecord:
        """The task with that reference, as `read` returns it. Raises ApiError (404)."""
        id_ = await self._store.referred(reference)
        record = None if id_ is None else await self.read(id_)
        if record is None:
            raise _not_found()
        return record

    async def read(self, id_: TaskId) -> TaskRecord | None:
        """The head of a task, with the outcome if it failed; None if there is none, or it has expired."""
        owner = await self._store.owner_of(id_)
        head = None if owner is None else await self._store.load(owner, id_, now=self._clock.now())
        return None if head is None else await self._with_fault(head)

    def item(self, record: TaskRecord) -> TaskItem:
        """What a list shows of a task. The reason of a failed one is in its outcome."""
        is_running = not record.status.is_terminal
        fault = record.outcome.reason if isinstance(record.outcome, Faulted) else None
        is_queued = is_running and not record.dispatched
        names = self._access.names(record.caller)
        return TaskItem(
            reference=self._reference_of(record.id),
            upstream=record.owner.mount,
            tool=record.call.tool,
            status=record.status,
            tool_error=record.tool_error,
            reason="tool_error" if record.tool_error else fault,
            is_queued=is_queued,
            queue_position=queue_position(record.status_message) if is_queued else None,
            # That of an ended task repeats its result.
            progress=record.status_message if is_running else None,
            caller=caller_reference(record.owner.context),
            **names_of(names) or {"tenant": record.tenant},
            created_at=record.created_at,
            updated_at=record.updated_at,
            ended_at=None if is_running else record.updated_at,
            expires_at=record.expires_at,
            replica=record.lease.holder if is_running and record.lease is not None else None,
            is_retrieved=record.retrieved,
        )


_UNKNOWN: Final = "There is no such task, or it has expired."
_NO_ROOM: Final = f"{MOST_PAYLOADS} payloads are being sent, or the audit log is full."
_RETRY: Final = {"Retry-After": "1"}


def _failure(record: TaskRecord, outcome: Faulted) -> TaskFailure:
    is_own = outcome.reason is not FaultReason.JSONRPC_ERROR
    return TaskFailure(reason=outcome.reason, message=record.status_message if is_own else None)


def _not_found() -> ApiError:
    return ApiError(404, "task_not_found", "there is no such task, or it has expired")


def _payload_of(item: TaskItem, record: TaskRecord) -> JsonChunks:
    """A `TaskPayload` of a record with its bodies. Texts of peers are in it as they are."""
    head = item.model_dump_json(include={"reference", "upstream", "tool", "status"}).encode()
    answers = {**(record.checkpoint.answers if record.checkpoint else {}), **record.answers}
    questions = [_named({"key": each.key, "method": each.method}, each.params) for each in record.inputs]
    return JsonChunks(
        [
            head[:-1],
            *(b',"arguments":', *_part(*_arguments(record))),
            *(b',"result":', *_part(*_outcome(record, TaskStatus.COMPLETED))),
            *(b',"error":', *_part(*_outcome(record, TaskStatus.FAILED))),
            *(b',"questions":[', *_listed(questions)),
            *(b'],"answers":[', *_listed([_named({"key": key}, text) for key, text in answers.items()])),
            b"]}",
        ]
    )


def _arguments(record: TaskRecord) -> tuple[PartState, RawJson | None]:
    params = record.call.params
    if params is None:
        return PartState.NOT_STORED, None
    found = members(params).get("arguments")
    return (PartState.NONE, None) if found is None else (PartState.SHOWN, params[found.start : found.end])


def _outcome(record: TaskRecord, status: TaskStatus) -> tuple[PartState, RawJson | LargeJson | None]:
    """The result or the error: what a task with that status has."""
    if not record.status.is_terminal:
        return PartState.PENDING, None
    if record.status is not status:
        return PartState.NONE, None
    return (PartState.NOT_STORED, None) if record.outcome is None else (PartState.SHOWN, outcome_text(record.outcome))


def _part(state: PartState, text: RawJson | LargeJson | None) -> list[bytes]:
    return [b'{"state":"%b",' % state.encode(), *_value(text)]


def _named(names: dict[str, str], text: RawJson) -> list[bytes]:
    return [orjson.dumps(names)[:-1], b",", *_value(text)]


def _value(text: RawJson | LargeJson | None) -> list[bytes]:
    if text is None:
        return [b'"bytes":null,"value":null}']
    # A lone surrogate has no UTF-8 form: it becomes the escape that JSON has for it.
    encoded = text.body if isinstance(text, LargeJson) else text.encode(errors="backslashreplace")
    return [b'"bytes":%d,"value":' % len(encoded), encoded, b"}"]


def _listed(items: list[list[bytes]]) -> list[bytes]:
    return [part for index, item in enumerate(items) for part in ([b",", *item] if index else item)]


def _outward_status(record: TaskRecord) -> TaskStatus:
    """The status that hosts see: an error of the tool is a failure."""
    return TaskStatus.FAILED if record.tool_error else record.status


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _tenant(record: TaskRecord, names: CallerNames | None) -> str | None:
    """The tenant of a task as operators see it: its name, or the reference to it."""
    return record.tenant if names is None else names.tenant


def _ticks(time: datetime) -> int:
    return (time - _EPOCH) // _TICK
