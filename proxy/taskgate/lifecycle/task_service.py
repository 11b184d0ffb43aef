"""The operations of hosts on tasks: `TaskService` creates and cancels them, `Lookups` reads them.

The handlers of both eras use it (`gateway.legacy`, `gateway.modern`). Tasks are looked up only by
the owner keys of the caller, so that no host reaches a task of another. `Runner` runs the call of a
task. `result_wait` waits for results.

By the operator's rules (`domain.policy`) a call becomes a task always, never, or automatically, when
it takes long. The decision may depend on what the server's catalogue says of the tool. `decide` is
for a call whose host did not request a task.

A task begins in one of two ways: `create` stores it before its call is sent, `promote` stores it
for a call that runs already. A call that need not wait is stored with the mark of its dispatch.
A call may *join* an earlier task instead: it is answered with that task, and is not sent itself.
With an idempotency key it joins the task that the same key created. Without one, an identical call
shortly after the first may be a retry of the host. It joins the first if the operator's rules allow
that (`RequestCoalescer`).
"""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from taskgate.admission.coalescing import CoalesceKey, RequestCoalescer, check_same_call
from taskgate.admission.concurrency import Permit, queue_status
from taskgate.admission.connected_hosts import ConnectedHosts
from taskgate.admission.lookups import Lookups
from taskgate.admission.rates import QuotaSubjects
from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock, Entropy
from taskgate.domain.events import CancelRequested, KeyReleased
from taskgate.domain.limits import Cap
from taskgate.domain.policy import OnLost, PromotionDecision, PromotionMode
from taskgate.domain.record import Lease, OwnerKey, TaskId, TaskRecord, TaskStatus, ToolCall, evolve
from taskgate.domain.versions import Era
from taskgate.errors import (
    InvalidParams,
    StoreUnavailable,
    TaskAlreadyFinished,
    TaskSupportMismatch,
    TooManyBytes,
    TooManyTasks,
    UpstreamFailed,
)
from taskgate.jsontext.display import quoted
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.lifecycle.runner import Expected, Runner
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.discovery import ListedTool
from taskgate.protocol.host_requests import CallTool, key_digest
from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.sessions.binding import CallSite, OngoingCall, client_features
from taskgate.stores.base import TaskStore
from taskgate.streams.exchange import Exchange
from taskgate.telemetry.events import (
    CallCoalesced,
    CapRefused,
    EventSink,
    TaskCancelRequested,
    TaskCreated,
    TaskDispatched,
)
from taskgate.telemetry.request_context import current

ID_BYTES: Final = 24

RERUNS: Final = 1
"""How often a call may be sent again: one that crashes its process must not do so forever."""
SEEN: Final = 64
"""The most names of tools that are compared with an unknown one."""
LONGEST_SEEN: Final = 32
"""The most characters of each of them."""


class EarlierHostConnected(Exception):
    """An earlier call under a key of the gateway's own is another call.

    Its host is not gone, or this one goes on with answers of its own.
    """


_NO_CAPS: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(slots=True)
class _NewTask:
    """A task that is to be stored: its call, its record, and the caps within which it must fit."""

    caller: AuthContext
    place: CallSite
    intent: CallTool
    record: TaskRecord
    caps: tuple[Cap, ...]


class TaskService:
    """The tasks of all hosts; one object per process.

    - `live`: the operator's rules, as they are at each call.
    - `runner`: runs the calls of new tasks.
    - `retrievals`: the results that were fetched here.
    - `hosts`: the hosts that are connected for calls with keys of the gateway's own.
    - `joining`: the calls of this process that others may join. Tasks of other processes are joined
      through the store, by idempotency key only.
    - `lease`: how long a new task belongs to its process without a heartbeat. None means for the
      whole lifetime of the task.
    """

    def __init__(
        self,
        *,
        store: TaskStore,
        transitions: Transitions,
        lookups: Lookups,
        runner: Runner,
        live: RuntimeConfig,
        quota_subjects: QuotaSubjects,
        retrievals: Retrievals,
        joining: RequestCoalescer,
        hosts: ConnectedHosts,
        event_sink: EventSink,
        clock: Clock,
        entropy: Entropy,
        lease: timedelta | None = None,
    ) -> None:
        self._store = store
        self._transitions = transitions
        self._lookups = lookups
        self._runner = runner
        self._live = live
        self._quota_subjects = quota_subjects
        self._retrievals = retrievals
        self._joining = joining
        self._hosts = hosts
        self._event_sink = event_sink
        self._clock = clock
        self._entropy = entropy
        self._lease = lease

    async def decide(self, caller: AuthContext, place: CallSite, tool: str) -> PromotionDecision:
        """Return the decision for a call, with the hints of the server's catalogue.

        Waits only if the catalogue was not read yet. If it cannot be read, there are no hints.
        Raises InvalidParams for a tool that must be listed and is not, UpstreamFailed if that is
        unknown.
        """
        has_to_be_listed = place.mount.name in self._live.current.access.only_listed
        try:
            tools = await place.upstream.tools(tool)
        except UpstreamFailed:
            if has_to_be_listed:
                raise
            tools = {}
        listed = tools.get(tool)
        if listed is None and has_to_be_listed:
            raise self._unknown_tool(caller, place, tool, tools)
        return self._live.current.policy.decide(place.mount.name, tool, None if listed is None else listed.hints)

    def expecting(self, place: CallSite) -> Expected:
        """Return the `with` block of a request whose call may become a task."""
        return Expected(self._runner, place)

    async def create(
        self, caller: AuthContext, place: CallSite, intent: CallTool, *, ticket: Permit | None = None
    ) -> tuple[TaskRecord, PromotionDecision]:
        """Create a task of the caller, and start its call.

        Returns the record of the new task, or of an earlier one that the call joins, and the
        decision for the call.

        `ticket` is the permit that the call already has or waits for; without it one is acquired
        here. The run of a new task takes the ticket over, and releases it. The ticket is released
        here if the call joins an earlier task. If this raises, the caller keeps it.

        No task is left if this raises. Raises InvalidParams for a tool that the server does not
        list or a key of another call. Raises TaskSupportMismatch for a tool that cannot be a task,
        TooManyTasks, TooManyBytes, QueueFull, StoreUnavailable, UpstreamFailed if the catalogue cannot be
        read, and EarlierHostConnected as `earlier`.
        """
        with Expected(self._runner, place):
            listed = place.upstream.listed(intent.tool) or await self._look_up(caller, place, intent.tool)
            decision = self._admit(place, intent, listed)
            record, is_new, key = None, False, intent.idempotency_key
            if key is not None:
                # Asked before a permit is acquired, and under all owner keys of the caller. `_insert`
                # asks only under the current one, for a task that was created meanwhile.
                record = await self._earlier(caller, place, intent, key)
                if record is None:
                    # A call that runs without a task has no task to join.
                    self._joining.check_key_unused(caller.owners(place.mount.name), key)
            if record is None:
                # The call leaves right after this write, which has the mark of its dispatch too.
                new = self._new_task(caller, place, intent, decision)
                window = decision.join_retries if key is None else None
                if window is None:
                    record = await self._start(new, ticket)
                else:
                    record = await self._once(new, window, partial(self._start, new, ticket))
                is_new = _is_made(new, record)
        if ticket is not None and not is_new:
            ticket.release()
        return record, decision

    async def promote(
        self, caller: AuthContext, place: CallSite, intent: CallTool, underway: OngoingCall
    ) -> TaskRecord:
        """Create a task of the caller for `underway`, a call that was already sent. Raises what
        `create` raises.

        Returns the record of the new task, which owns the call from then on. If the call joins an
        earlier task, that one's record is returned, and `underway` is cancelled. If this raises,
        the call is unchanged.
        """
        # A call with an idempotency key becomes a task before it is sent (`create`), so no earlier
        # use of a key is looked up here.
        with Expected(self._runner, place):
            listed = place.upstream.listed(intent.tool) or await self._look_up(caller, place, intent.tool)
            decision = self._admit(place, intent, listed)
            new = self._new_task(caller, place, intent, decision)
            window = decision.join_retries if intent.idempotency_key is None else None
            if window is None:
                record = await self._adopt(new, underway)
            else:
                record = await self._once(new, window, partial(self._adopt, new, underway))
        if not _is_made(new, record):
            underway.close()
        return record

    async def earlier(self, caller: AuthContext, place: CallSite, intent: CallTool) -> TaskRecord | None:
        """Return the task of an earlier call with the same idempotency key; None if there is none,
        or the call has no key.

        Raises InvalidParams if the key is of another call, and StoreUnavailable. Raises EarlierHostConnected if the
        earlier call has a host that is not gone, and the key is the gateway's own.
        """
        key = intent.idempotency_key
        return None if key is None else await self._earlier(caller, place, intent, key)

    def abandon(self, owner: OwnerKey, task: TaskId) -> None:
        """Cancel a task in the background, because its host disconnected before it got the id.

        Returns at once. Nothing happens if the task has ended.
        """
        self._runner.cancel(owner, task)

    async def cancel(
        self,
        exchange: Exchange,
        caller: AuthContext,
        mount: str,
        task: TaskId,
        method: str,
        *,
        is_of_tool: bool = False,
    ) -> TaskRecord:
        """Cancel a task, and return its cancelled record. `is_of_tool` is as in `Lookups.find`.

        Its run learns of it from the store, and then cancels the call at the server. Raises
        TaskAlreadyFinished if the task had ended (L-CANCEL-1), and what `Lookups.find` raises.
        """
        while True:
            record = await self._lookups.find(exchange, caller, mount, task, method, is_of_tool=is_of_tool)
            if record.status.is_terminal:
                self._event_sink.emit(TaskCancelRequested(record, "already_terminal"))
                raise TaskAlreadyFinished("The task has already ended")
            asked = TaskCancelRequested(record, "propagated")
            cancelled = await self._transitions.apply(record, CancelRequested(), self._clock.now(), announce=asked)
            if cancelled is not None:
                await self._runner.stop_run(cancelled.id)
                return cancelled
            # The record has changed since it was read, so it is read again.

    async def _look_up(self, caller: AuthContext, place: CallSite, tool: str) -> ListedTool:
        """Return a tool from the server's catalogue. Raises InvalidParams if it is not there."""
        tools = await place.upstream.tools(tool)
        listed = tools.get(tool)
        if listed is None:
            raise self._unknown_tool(caller, place, tool, tools)
        return listed

    def _unknown_tool(
        self, caller: AuthContext, place: CallSite, tool: str, tools: Mapping[str, ListedTool]
    ) -> InvalidParams:
        """Return the error for a tool that the server does not list, with a similar one that the caller may call."""
        text, access, mount = f"Unknown tool {quoted(tool)}", self._live.current.access, place.mount.name
        for near in _similar(tool, tools):
            if access.decide(caller.identity, method=TOOLS_CALL, upstream=mount, tool=near).allowed:
                return InvalidParams(f"{text}: did you mean {quoted(near)}?")
        return InvalidParams(f"{text}: tools/list has the tools of this server")

    def _admit(self, place: CallSite, intent: CallTool, listed: ListedTool) -> PromotionDecision:
        """Return the decision for a call that is to be a task; `listed` is its tool in the catalogue.

        Raises TaskSupportMismatch for a tool that cannot be a task.
        """
        decision = self._live.current.policy.decide(place.mount.name, intent.tool, listed.hints)
        if decision.mode is PromotionMode.SYNC:
            raise TaskSupportMismatch(f"The tool {quoted(intent.tool)} cannot run as a task: call it without")
        return decision

    def _new_task(
        self,
        caller: AuthContext,
        place: CallSite,
        intent: CallTool,
        decision: PromotionDecision,
    ) -> _NewTask:
        """Make the record of a new task that this process is to run, with the mark of its dispatch."""
        now, rules, standing = self._clock.now(), self._live.current, self._quota_subjects.of(caller)
        override, request, host_session = standing.override, current(), place.host_session
        longest = decision.ttl_max if override is None or override.ttl_max is None else override.ttl_max
        ttl, expires_at = decision.clamp_ttl(intent.ttl, longest), now + longest
        record = TaskRecord(
            id=urlsafe_b64encode(self._entropy.token(ID_BYTES)).decode(),
            owner=caller.owners(place.mount.name)[0],
            call=ToolCall(
                tool=intent.tool,
                peer=place.peer,
                host_session=host_session,
                # Without a host session no stream could carry progress with this token.
                progress_token=None if host_session is None else intent.progress_token,
                params=intent.stored_params,
            ),
            status=TaskStatus.WORKING,
            created_at=now,
            updated_at=now,
            ttl=ttl,
            poll_interval=rules.polling.base,
            dispatched=True,
            lease=Lease(holder=self._runner.holder, until=expires_at if self._lease is None else now + self._lease),
            tenant=standing.tenant,
            deadline=decision.deadline,
            reruns=RERUNS if decision.on_lost is OnLost.RERUN else 0,
            idempotency_digest=None if intent.idempotency_key is None else key_digest(intent.idempotency_key),
            trace=None if request is None or request.span is None else request.span.traceparent,
            handed_to=intent.handed_to,
            caller=caller.names if rules.names_callers else None,
            expires_at=expires_at,
        )
        mine = _NO_CAPS if override is None else override.caps
        caps = rules.caps.applicable(mine, decision.cap, standing.tenant is not None)
        return _NewTask(caller, place, intent, record, caps)

    def _once(
        self, new: _NewTask, window: timedelta, make: Callable[[], Coroutine[Any, Any, TaskRecord]]
    ) -> Coroutine[Any, Any, TaskRecord]:
        """Return the task that `make` creates, or that of an identical call of the same caller.

        `make` stores the new task. It is not called if an identical call has a task, or is getting
        one, and started within `window`: it counts as a retry then. The record has the id of `new`
        if the task is a new one. Not for a call with a key, whose earlier task the store finds.
        """
        place = new.place

        async def make_shared() -> TaskRecord:
            # Joined calls share this, and the first request may disconnect before the task exists.
            # So this block keeps the session open too.
            with Expected(self._runner, place):
                return await make()

        era = Era.MODERN if place.host_session is None else Era.LEGACY
        return self._joining.run(
            CoalesceKey(
                new.record.owner,
                new.intent,
                window,
                accepts_task=True,
                era=era,
                features=client_features(place.peer),
                scopes=place.mount.scopes_of(new.caller),
            ),
            make_shared,
        )

    async def _start(self, new: _NewTask, ticket: Permit | None) -> TaskRecord:
        """Store the task of `create` and start its call. Returns the new record, or the earlier
        task's that `_insert` found; then nothing is started.

        A permit that was acquired here is released unless the call is started.
        """
        caller, place = new.caller, new.place
        permit = place.mount.bulkhead.acquire(caller.subject, caller) if ticket is None else ticket
        if not permit.is_granted:
            new.record = evolve(new.record, status_message=queue_status(permit.ahead), dispatched=False)
        record = None
        try:
            record = await self._insert(new, is_sent=False)
        finally:
            if ticket is None and (record is None or record.id != new.record.id):
                permit.release()
        if record.id == new.record.id:
            self._runner.start(record, place, caller, permit)
        return record

    async def _adopt(self, new: _NewTask, underway: OngoingCall) -> TaskRecord:
        """Store the task of `promote` and give it the running call. Returns the new record, or the
        earlier task's that `_insert` found; then the call is unchanged.
        """
        record = await self._insert(new, is_sent=True)
        if record.id == new.record.id:
            self._event_sink.emit(TaskDispatched(record, timedelta()))
            self._runner.adopt(record, underway, new.place)
        return record

    async def _insert(self, new: _NewTask, *, is_sent: bool) -> TaskRecord:
        """Store a new record; return it, or the earlier one with its idempotency key.

        `is_sent` is whether its call was sent before. Raises what `create` raises.
        """
        record, earlier = new.record, None
        while earlier is None:
            try:
                id = await self._store.insert(record, caps=new.caps, subject=new.caller.subject)
            except (StoreUnavailable, asyncio.CancelledError):
                # It may be stored all the same: end it in the background, because its caller gets
                # an error, or the call continues without a task. A cancelled one has no result for the
                # same call made again.
                self._runner.disown(record.owner, record.id, dispatched=is_sent, cancelled=new.intent.is_own_key)
                raise
            except (TooManyTasks, TooManyBytes) as refusal:
                cap = "tasks" if isinstance(refusal, TooManyTasks) else "bytes"
                self._event_sink.emit(CapRefused(cap, refusal.scope))
                raise
            if id == record.id:
                self._event_sink.emit(TaskCreated(record, _adjustment(new.intent.ttl, record.ttl)))
                return record
            # The earlier task may be purged meanwhile, or have ended unsent: then none has the key.
            earlier = await self._load_with_key(record.owner, id, record.created_at, new.intent)
        if is_sent and new.intent.is_own_key:
            if new.intent.goes_on or earlier.lease is None or earlier.lease.holder != self._runner.holder:
                raise EarlierHostConnected
            # It joined the other call when it was sent, and that was reported.
            return earlier
        return await self._joined(earlier, new.intent, new.place)

    async def _earlier(self, caller: AuthContext, place: CallSite, intent: CallTool, key: str) -> TaskRecord | None:
        """Return the whole record of the task that the call's idempotency key created; None if
        there is none. Raises InvalidParams if the key is of another call.

        A caller has a second owner key while the deployment key is being replaced.
        """
        digest, now = key_digest(key), self._clock.now()
        for owner in caller.owners(place.mount.name):
            id = await self._store.repeated(owner, digest, now=now)
            record = None if id is None else await self._load_with_key(owner, id, now, intent)
            if record is not None:
                return await self._joined(record, intent, place)
        return None

    async def _load_with_key(self, owner: OwnerKey, id: TaskId, now: datetime, intent: CallTool) -> TaskRecord | None:
        """Return a whole record; None if it has expired, or no longer has its idempotency key.

        A key of the gateway's own is released first if it names a call that was fetched, was cancelled,
        or ended too long ago.
        """
        record = await self._store.load(owner, id, now=now, bodies=True)
        if record is None or record.idempotency_digest is None:
            return None
        if intent.is_own_key and record.status.is_terminal and not self._answers_again(record, now):
            # Without the result, which is in the store already. If the record has changed, it is read again.
            await self._transitions.apply(evolve(record, outcome=None), KeyReleased(), now)
            return None
        return record

    def _answers_again(self, record: TaskRecord, now: datetime) -> bool:
        """Whether the result of an ended call answers the same call made again."""
        window = self._live.current.handoff.retry_window
        was_fetched = record.retrieved or self._retrievals.was_reported(record.id)
        return not was_fetched and record.status is not TaskStatus.CANCELLED and now - record.updated_at <= window

    async def _joined(self, record: TaskRecord, intent: CallTool, place: CallSite) -> TaskRecord:
        """Return the record of an earlier task that the call joins by its key, and report that.

        Raises InvalidParams if the task is of another call, and EarlierHostConnected as `earlier`.
        """
        # A key of the gateway's own is made of the call.
        if not intent.is_own_key:
            await check_same_call(record, intent)
        elif intent.goes_on or await self._hosts.attends(record.id, place.host_session or ""):
            raise EarlierHostConnected
        self._event_sink.emit(CallCoalesced(record.owner.mount, "retry" if intent.is_own_key else "key"))
        return record


def _is_made(new: _NewTask, record: TaskRecord) -> bool:
    """Return whether the task is new: the record is not that of an earlier task.

    As an effect, the id of a new task is noted in the context of the current request, for reports.
    """
    is_new, request_context = record.id == new.record.id, current()
    if is_new and request_context is not None:
        request_context.task = record.id
    return is_new


def _adjustment(asked: timedelta | None, granted: timedelta) -> str | None:
    """Return how the rules changed the lifetime that the host asked for; None if they did not."""
    if asked is None:
        return "defaulted"
    if asked == granted:
        return None
    return "clamped_max" if asked > granted else "raised_min"


def _similar(name: str, names: Iterable[str]) -> list[str]:
    """The names most like another, of the first SEEN names that are no longer than LONGEST_SEEN."""
    if len(name) > LONGEST_SEEN:
        return []
    seen = islice((each for each in names if len(each) <= LONGEST_SEEN), SEEN)
    return get_close_matches(name, seen, n=3)
