"""The requests of hosts about tasks: `TaskRequests`, for `tasks/*` of both eras.

A caller reaches only its own tasks, whichever era created them. The eras see tasks differently:

| request | legacy | modern |
|---|---|---|
| `tasks/get` | the state | the state, with the result of an ended task |
| `tasks/cancel` | the cancelled state, or an error | an acknowledgement in any case (M-CANCEL-1) |
| `tasks/result`, `tasks/list` | served | - |
| `tasks/update` | - | an acknowledgement in any case (M-UPD-1) |

The dialect of the host says which it is. `tasks/result` waits for the task. `tasks/get` waits for a
new one, but not for long.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from taskgate.admission.connected_hosts import ConnectedHosts, host_reference
from taskgate.admission.lookups import Lookups
from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.cluster.bus import ClusterBus
from taskgate.cluster.messages import CallAskedFor
from taskgate.domain.events import InputAnswered, TaskEvent
from taskgate.domain.listing import Page
from taskgate.domain.record import RequestId, TaskId, TaskRecord, TaskStatus
from taskgate.domain.versions import LEGACY, MODERN, Peer, client_of
from taskgate.errors import InvalidParams, MissingCapability, TaskAlreadyFinished, TaskNotFound, TooManyTasks
from taskgate.gateway.eras import Call, DecodedMessage
from taskgate.gateway.listeners import HostListener, ResponseWaiter, event_limit
from taskgate.jsontext.spans import RawJson, members
from taskgate.lifecycle.input_delivery import InputDelivery
from taskgate.lifecycle.result_wait import ResultWaiter
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.lifecycle.runner import Runner
from taskgate.lifecycle.task_service import TaskService
from taskgate.lifecycle.task_streams import question_streams
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.faults import TASKS_NEEDED
from taskgate.protocol.handoff import (
    LIST,
    NO_CALL,
    HandoffTools,
    add_list,
    handle_in,
    hide_tools,
    read_handle,
    seconds_text,
)
from taskgate.protocol.host_requests import (
    AwaitTask,
    CallTool,
    CancelTask,
    GetTask,
    HandleRequest,
    InboxRequest,
    LegacyTaskRequest,
    ListTasks,
    Retry,
    UpdateTask,
)
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import Request, is_task_id
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.server_messages import Answer
from taskgate.protocol.vocabulary import TASKS_CANCEL, TASKS_GET, TASKS_LIST, TASKS_RESULT, TASKS_UPDATE
from taskgate.sessions.host_session import HostSession
from taskgate.sessions.registry import HostSessions
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.telemetry.request_context import RequestContext

ABOUT_A_TASK: Final = (GetTask, AwaitTask, UpdateTask, CancelTask, LegacyTaskRequest, HandleRequest)
"""The requests about one task. The access rules apply to the tool of that task, when it is found."""
ABOUT_TASKS: Final = (*ABOUT_A_TASK, InboxRequest)
"""The requests of modern hosts that no server answers."""


_STATE: Final = re.compile(r"[0-9]{1,12}\.[0-9]{3}").fullmatch
"""The end of a wait as its rounds carry it: seconds since 1970."""
_MOST_SECONDS: Final = 7 * 86_400.0


@dataclass(slots=True)
class WaitingHost:
    """A host without tasks that waits for the result of a call; `token` is that of its progress.

    `session` is that of a legacy host, which is asked on its streams. `tools` are those of the gateway, and
    `info` is the serverInfo for the host, if it replaces that of the server. `takes_rounds`: the request is
    a wait, whose retry brings the answers to the server's questions. `peer` is what the host declares.
    """

    dialect: LegacyDownstream | ModernDownstream
    exchange: Exchange
    caller: AuthContext
    session: HostSession | None
    id: RequestId
    token: RequestId | None
    tools: HandoffTools
    info: RawJson | None
    peer: Peer
    takes_rounds: bool = False


class HandleRequests:
    """The answers to hosts that know no tasks: the result of a call that has become one, or its handle."""

    def __init__(
        self,
        *,
        modern: ModernDownstream,
        results: ResultWaiter,
        retrievals: Retrievals,
        offers: InputDelivery,
        waiter: ResponseWaiter,
        live: RuntimeConfig,
        hosts: ConnectedHosts,
        sessions: HostSessions,
        clock: Clock,
        bus: ClusterBus | None,
    ) -> None:
        self._modern = modern
        self._sessions = sessions
        self._bus = bus
        if bus is not None:
            bus.subscribe(CallAskedFor, lambda message, _: self._on_asked(message.task))
        self._unasked: dict[TaskId, asyncio.Event] = {}
        """The calls whose host is gone, each with what is set when a host asks for its result."""
        self._results = results
        self._retrievals = retrievals
        self._offers = offers
        self._waiter = waiter
        self._hosts = hosts
        self._live = live
        self._clock = clock

    def progress(self, exchange: Exchange, peer: Peer, token: RequestId | None) -> timedelta | None:
        """Return the longest time without progress that the host of a request gets; None if it gets none.

        A host that takes only small events may wait for a document, without any.
        """
        if token is None or not exchange.head.accepts_stream:
            return None
        if event_limit(self._waiter.keepalives.limits, exchange, peer) is not None:
            return None
        # A keep-alive is left out if something else was sent since the last.
        return timedelta(seconds=2 * self._waiter.keepalives.interval)

    def patience(self, request: DecodedMessage, record: TaskRecord) -> timedelta:
        """Return how long a host waits for the answer to a wait for that task."""
        intent, peer = request.intent, _peer_of(request)
        assert isinstance(intent, HandleRequest), "a wait"
        rules, most = self._live.current, None
        if intent.state is not None and _STATE(intent.state):
            # A host that changes the state changes its own wait, and makes it no longer.
            most = timedelta(seconds=max(0.0, min(float(intent.state) - self._clock.wall_seconds(), _MOST_SECONDS)))
        terms = rules.policy.shortest_handoff(record.owner.mount, record.call.tool)
        progress = self.progress(request.exchange, peer, intent.call.progress_token)
        patience = rules.handoff.patience(terms, client_of(peer.info).name, progress)
        return patience if most is None else min(patience, most)

    # Without tokens all hosts are one caller, and a handle goes through models, which may give it to any server.

    def grant(self, record: TaskRecord, exchange: Exchange, session: str | None, peer: Peer) -> None:
        """Handle that a host gets the handle of a call; `session` is the id of that of a legacy host."""
        if record.handed_to is not None:
            host = session or host_reference(exchange.address, client_of(peer.info))
            if host is not None:
                self._hosts.grant(record.id, host)

    def is_good(self, record: TaskRecord, exchange: Exchange, session: str | None, peer: Peer) -> bool:
        """Return whether the handle of a call is good for a host: one that got it, or may be one.

        A session that got it is the host. While its host is not connected, or without a session, each
        host may be it that has the same address block and name. Hosts connect again in new sessions.
        """
        first = record.call.host_session
        if record.handed_to is None or (session and session == first):
            return True
        reference = host_reference(exchange.address, client_of(peer.info))
        if self._hosts.is_granted(record.id, session or reference or ""):
            return True
        if reference != record.handed_to:
            return False
        return first is None or not self._sessions.is_connected(first)

    async def is_asked_for(self, task: TaskId, within: timedelta) -> bool:
        """Wait until a host asks any replica for the result of a call.

        Returns False if none does within that time, and none waits at its end or has the handle. A host that waits
        asks again only at a change, or after long.
        """
        asked = self._unasked[task] = asyncio.Event()
        try:
            async with asyncio.timeout(within.total_seconds()):
                await asked.wait()
        except TimeoutError:
            return await self._hosts.attends(task, "")
        finally:
            if self._unasked.get(task) is asked:
                del self._unasked[task]
        return True

    def _on_asked(self, task: TaskId) -> None:
        if (unasked := self._unasked.get(task)) is not None:
            unasked.set()

    async def deliver(self, host: WaitingHost, record: TaskRecord, within: timedelta) -> HttpReply:
        """Answer with the result of a call if it is known within that time, else with the handle.

        The host gets the newest progress meanwhile, and the questions of the server: a legacy host on a
        stream, a modern one as the answer. Raises what `ResultWaiter.watch` raises, and MissingCapability
        if a modern host does not declare what a question needs.
        """
        self._on_asked(record.id)
        session = None if host.session is None else host.session.id
        self._hosts.attend(host.exchange, record.id, session or "")
        self.grant(record, host.exchange, session, host.peer)
        listener = HostListener(host.exchange, host.token, self._waiter.keepalives, host.dialect)
        listener.peer = host.peer
        if host.session is not None:
            listener.other_streams = question_streams(record, host.session)
        told: str | None = None
        begun = self._clock.elapsed()

        async def report(record: TaskRecord) -> bool:
            nonlocal told
            self._on_asked(record.id)
            if self._bus is not None:
                self._bus.send(CallAskedFor(record.id))
            if record.status_message is not None and record.status_message != told:
                told = record.status_message
                listener.tell(told)
            if host.session is None:
                return not self._modern.open_inputs(record)
            if record.inputs and host.exchange.head.accepts_stream:
                await self._results.offer(record, listener.feed(), host.session.peer)
            return True

        try:
            with listener:
                watched = self._results.watch(host.caller, record, within, report, is_call=not host.takes_rounds)
                record = await self._waiter.wait(host.exchange, watched)
        except TooManyTasks:
            if host.takes_rounds:
                raise
            # A call made again that may not wait gets its handle at once.
            return self.reply(host.dialect, host.tools, host.id, record)
        finally:
            if host.session is not None and host.exchange.is_streaming:
                self._offers.give_back(listener.feed())
        if not record.status.is_terminal:
            if host.takes_rounds and host.session is None and self._modern.open_inputs(record):
                # The call may have been that of a host which declares more.
                if undeclared := self._modern.undeclared(record, host.peer):
                    raise MissingCapability(undeclared)
                # The rounds of one wait have one ceiling: hosts may count them as one call.
                until = self._clock.wall_seconds() + (begun + within.total_seconds() - self._clock.elapsed())
                return HttpReply(body=self._modern.task_round(host.id, record, f"{until:.3f}"))
            return self.reply(host.dialect, host.tools, host.id, record)
        if record.status is TaskStatus.CANCELLED:
            return self.cancelled(host.dialect, host.tools, host.id, record)
        return self._result(host, record, listener.event_limit())

    def _result(self, host: WaitingHost, record: TaskRecord, most: int | None) -> HttpReply:
        """Answer with the result of a call that has ended; `most` is the limit of the events that the host takes.

        If it exceeds that, and the answer is a stream by now, the host gets the handle again. Its next wait
        gets the result at once, and so as a document.
        """
        exchange = host.exchange
        revision = MODERN[-1] if host.session is None else host.session.peer.revision
        text = host.dialect.call_outcome(host.id, record, host.info, revision)
        if most is not None and len(text) > most and exchange.is_streaming and exchange.head.accepts_json:
            return self.reply(host.dialect, host.tools, host.id, record)
        # A result that was not fetched answers the same call made again.
        exchange.on_sent(lambda was_sent: self._retrievals.note(record) if was_sent else None)
        return HttpReply(body=text)

    def reply(
        self,
        dialect: LegacyDownstream | ModernDownstream,
        tools: HandoffTools | None,
        id: RequestId,
        record: TaskRecord,
        age: timedelta | None = None,
        progress: str | None = None,
    ) -> HttpReply:
        """Answer with the handle of a call that still runs.

        `age` is that of the call; without it the time since it became a task is told. `progress` is the
        newest one that its record may not have yet.
        """
        assert tools is not None, "its host knows no tasks"
        spent = f"for {seconds_text(age)}" if age is not None else self._spent(record)
        text = tools.handle_text(record, spent, progress or record.status_message)
        return HttpReply(body=dialect.text_result(id, text))

    def calls(self, tools: HandoffTools, request: DecodedMessage, intent: InboxRequest, found: Page) -> HttpReply:
        """Answer with the list of a caller's calls, without those whose result was got just now."""
        unread = [task for task in found.tasks if not self._retrievals.was_reported(task.id)]
        is_whole, now = found.next is None, self._clock.now()
        text = tools.calls_text(unread, now, is_whole=is_whole, knows_tasks=intent.knows_tasks)
        return HttpReply(body=request.adapter.dialect.text_result(intent.id, text))

    def _spent(self, record: TaskRecord) -> str:
        return f"for more than {seconds_text(self._clock.now() - record.created_at)}"

    def cancelled(
        self, dialect: LegacyDownstream | ModernDownstream, tools: HandoffTools, id: RequestId, record: TaskRecord
    ) -> HttpReply:
        """Answer that a call was cancelled, or that it had ended before."""
        return HttpReply(body=dialect.text_result(id, tools.cancelled_text(record)))


def _peer_of(request: DecodedMessage) -> Peer:
    """Return what the host of a request declares."""
    assert request.peer is not None, "a legacy host has a session"
    return request.peer


def own_tools(call: Call) -> Callable[[RawJson], RawJson] | None:
    """Return the change of a page of `tools/list`; None if the gateway has no tools at any mount.

    A host without tasks gets the tools of the gateway, if late calls are handed off here. A host with tasks
    gets the list of calls, if the operator wants it. No host gets a tool of the server with such a name.
    """
    mount, lists = call.mount, call.caller.identity is not None
    assert mount is not None, "a call of a host"
    if call.handoff is not None:
        is_first = call.params is None or "cursor" not in members(call.params.with_token(0))
        may_hand_off = call.session.mount.may_hand_off
        hidden = mount.reserved
        return partial(call.handoff.add_to, may_hand_off=may_hand_off, is_first=is_first, lists=lists, hidden=hidden)
    if lists and mount.inbox and not call.lacks_tasks:
        return partial(add_list, reserved=mount.reserved)
    return partial(hide_tools, names=mount.reserved) if mount.reserved else None


def note_handle(decoded: DecodedMessage, context: RequestContext) -> None:
    """Make a call with the name of a tool of the gateway a request about tasks, also for rate limits and reports.

    While no mount has the tool, a server may have one with such a name: only a handle tells them apart.
    Raises InvalidParams, and TaskNotFound for a handle of a wrong form.
    """
    intent, message, mount = decoded.intent, decoded.message, decoded.mount
    call, answers, state = intent, None, None
    if isinstance(intent, Retry):
        call, answers, state = intent.request, intent.answers, intent.state
    assert isinstance(call, CallTool), "a call of such a name"
    assert isinstance(message, Request), "a call is a request"
    is_reserved = call.tool in mount.reserved
    if call.tool == LIST.name:
        if is_reserved:
            context.names_handle = True
            decoded.intent = InboxRequest(call.id, _knows_tasks(decoded))
            decoded.tool, decoded.limited_as = None, TASKS_LIST
        return
    if is_reserved and not mount.hands_off:
        raise InvalidParams(f"{call.tool} is a tool of the gateway, which has no handles here: no such tool is called")
    if not is_reserved and not is_task_id(handle_in(message.params)):
        return
    tools = mount.handoff
    assert tools is not None, "where a mount hands off, it offers tasks"
    if not tools.has(call.tool):
        raise InvalidParams(f"{call.tool} is an earlier name of a tool of the gateway: tools/list has the present one")
    context.names_handle = True
    task, cancels = read_handle(call.tool, message.params), call.tool == tools.cancel.name
    decoded.intent = HandleRequest(call=call, task=task, cancels=cancels, answers=answers, state=state)
    context.task = task
    decoded.tool, decoded.limited_as = None, TASKS_CANCEL if cancels else TASKS_RESULT


def _knows_tasks(decoded: DecodedMessage) -> bool:
    """Return whether the host knows tasks. Raises InvalidParams if it may not list the calls of its caller.

    Without a token all hosts are one caller, so nothing is listed.
    """
    mount, meta, session = decoded.mount, decoded.meta, decoded.session
    knows_tasks = meta.declares_tasks if meta is not None else session is not None and session.knows_tasks
    if decoded.caller.identity is None or not (mount.hands_off or (mount.inbox and knows_tasks)):
        raise InvalidParams(f"{LIST.name} is a tool of the gateway, which lists no calls here: no such tool is called")
    return knows_tasks


class TaskRequests:
    """The handler of `tasks/*`. `legacy` and `modern` encode what only one era has."""

    def __init__(
        self,
        *,
        legacy: LegacyDownstream,
        modern: ModernDownstream,
        tasks: TaskService,
        lookups: Lookups,
        results: ResultWaiter,
        transitions: Transitions,
        retrievals: Retrievals,
        runner: Runner,
        handles: HandleRequests,
    ) -> None:
        self._handles = handles
        self._legacy = legacy
        self._modern = modern
        self._tasks = tasks
        self._lookups = lookups
        self._results = results
        self._transitions = transitions
        self._retrievals = retrievals
        self._runner = runner

    def poll(
        self, request: DecodedMessage, now: float, record: TaskRecord | None = None
    ) -> HttpReply | Awaitable[HttpReply]:
        """Answer a poll that came at this monotonic time, at once if what it wants needs no wait.

        `record` is the head of the task, if it was found. Raises what `answer` does.
        """
        caller, session, intent, dialect = request.caller, request.session, request.intent, request.adapter.dialect
        assert isinstance(intent, GetTask), "a poll"
        if record is None:
            # Its session is used, and needed for no time.
            if session is not None and session.last_used < now:
                session.last_used, session.knows_tasks = now, True
            record = self._lookups.recall(caller, request.mount.name, intent.task, TASKS_GET)
            if record is None:
                return self._poll_late(request, intent.task, now)
        interval = self._lookups.poll(caller, record, now)
        # Nearly always a polled task is still running. Then the record without its bodies is enough, as it always is
        # for a state without the result.
        if record.status.is_terminal and dialect.state_has_result:
            return self._ended_state(record, caller, intent)
        return HttpReply(200, dialect.task_state(intent.id, record, interval))

    async def _poll_late(self, request: DecodedMessage, task: TaskId, now: float) -> HttpReply:
        """Answer a poll whose task is new, or which the store returns only after a wait, or not at all."""
        exchange, caller = request.exchange, request.caller
        record = await self._lookups.find(exchange, caller, request.mount.name, task, TASKS_GET)
        within = self._lookups.poll_wait(record)
        if within:
            record, request.waited = await self._results.poll(exchange, caller, record, within)
            now += request.waited
        reply = self.poll(request, now, self._lookups.shown(record))
        return reply if isinstance(reply, HttpReply) else await reply

    async def answer(self, request: DecodedMessage) -> HttpReply:
        """Answer a request about tasks that is no poll.

        Raises TaskNotFound for a task that is unknown, expired, or of another caller, and what else
        `Lookups` raises.
        """
        exchange, caller, mount = request.exchange, request.caller, request.mount.name
        match request.intent:
            case CancelTask() as intent:
                return await self._cancel(request, intent)
            case AwaitTask(id=id_, task=task):
                assert request.session is not None, "only a legacy host waits for a result"
                record = await self._results.outcome(exchange, caller, request.session, task, TASKS_RESULT)
                return HttpReply(200, self._legacy.task_outcome(id_, record))
            case ListTasks(id=id_, where=where, order=order, cursor=cursor):
                listed, following = await self._lookups.page(caller, mount, cursor, where, order)
                return HttpReply(200, self._legacy.task_page(id_, listed, following))
            case InboxRequest() as intent:
                tools = request.mount.handoff
                assert tools is not None, "where calls are listed, there are tasks"
                return self._handles.calls(tools, request, intent, await self._lookups.unfetched(caller, mount))
            case UpdateTask() as intent:
                return await self._update(request, intent)
            case LegacyTaskRequest() as intent:
                return await self._of_legacy(request, intent)
            case HandleRequest() as intent:
                try:
                    return await self._of_handle(request, intent)
                except TaskNotFound:
                    raise TaskNotFound(NO_CALL) from None
        raise AssertionError(f"unexpected intent of a request: {type(request.intent).__name__}")

    async def _cancel(self, request: DecodedMessage, intent: CancelTask) -> HttpReply:
        """Cancel the task. One that has ended is an error, unless hosts of the era get none."""
        dialect, record = request.adapter.dialect, None
        try:
            record = await self._tasks.cancel(
                request.exchange, request.caller, request.mount.name, intent.task, TASKS_CANCEL
            )
        except TaskAlreadyFinished:
            if not dialect.acknowledges_cancel:
                raise
        return HttpReply(200, dialect.task_cancelled(intent.id, record))

    async def _update(self, request: DecodedMessage, intent: UpdateTask) -> HttpReply:
        """Take answers to the task's input requests. The first answer to each counts.

        Answers to what is answered, withdrawn or unknown have no effect (M-UPD-2). Raises
        InvalidParams if an answer does not fit its input request; then none is taken.
        """
        record = await self._lookups.find(
            request.exchange, request.caller, request.mount.name, intent.task, TASKS_UPDATE
        )
        await self._take_answers(request.caller, record, intent.answers)
        return HttpReply(200, self._modern.acknowledgement(intent.id))

    async def _take_answers(self, caller: AuthContext, record: TaskRecord, given: Mapping[str, Answer]) -> None:
        """Store the answers to open input requests of a task. Raises InvalidParams as `_update`."""
        dialect = self._modern
        if not all(map(record.has_asked, given)):
            self._transitions.unasked(record.owner)
        asked = dialect.open_inputs(record)
        answers = {key: answer for key, answer in given.items() if key in asked}
        if not all(dialect.is_valid_answer(asked[key].method, answer) for key, answer in answers.items()):
            raise InvalidParams("An input response does not match its input request")
        if answers:
            # Before the first answer is stored, because storing it sends it to the server. The server
            # gets it on behalf of the caller who gave it.
            self._runner.answers((record.owner,), record.id, caller)
        for key, answer in answers.items():
            await self._transitions.make(record.owner, record.id, partial(_answered, key, answer))

    async def _of_handle(self, request: DecodedMessage, intent: HandleRequest) -> HttpReply:
        """Serve a call of a tool of the gateway: wait for the result of a call, or cancel it."""
        exchange, caller, mount, dialect = request.exchange, request.caller, request.mount, request.adapter.dialect
        tools = mount.handoff
        assert tools is not None, "it has tools of the gateway"
        method = TASKS_CANCEL if intent.cancels else TASKS_RESULT
        record, peer = (
            await self._lookups.find(exchange, caller, mount.name, intent.task, method, is_of_tool=True),
            _peer_of(request),
        )
        session = None if request.session is None else request.session.id
        if not self._handles.is_good(record, exchange, session, peer):
            await self._lookups.refuse(exchange, caller, record, method)
        if intent.cancels:
            if not record.status.is_terminal:
                with suppress(TaskAlreadyFinished):
                    record = await self._tasks.cancel(
                        exchange, caller, mount.name, intent.task, method, is_of_tool=True
                    )
            return self._handles.cancelled(dialect, tools, intent.call.id, record)
        if intent.answers:
            await self._take_answers(caller, record, intent.answers)
            record = await self._lookups.reload(record)
        host = WaitingHost(
            dialect,
            exchange,
            caller,
            request.session,
            intent.call.id,
            intent.call.progress_token,
            tools=tools,
            info=mount.info,
            peer=peer,
            takes_rounds=True,
        )
        return await self._handles.deliver(host, record, self._handles.patience(request, record))

    async def _of_legacy(self, request: DecodedMessage, intent: LegacyTaskRequest) -> HttpReply:
        """Serve `tasks/get` or `tasks/cancel` of a modern host that does not declare tasks (AMB-19).

        Only a task of the legacy era is served. Raises MissingCapability for any other task,
        whether it exists or not.
        """
        exchange, caller, asked = request.exchange, request.caller, intent.request
        method = TASKS_GET if isinstance(asked, GetTask) else TASKS_CANCEL
        try:
            record = await self._lookups.find(exchange, caller, request.mount.name, asked.task, method)
            interval = self._lookups.poll(caller, record) if method == TASKS_GET else None
            if record.call.peer.revision not in LEGACY:
                raise MissingCapability(TASKS_NEEDED)
            if not isinstance(asked, GetTask):
                return await self._cancel(request, asked)
            if record.status.is_terminal:
                return await self._ended_state(record, caller, asked)
            return HttpReply(200, self._modern.task_state(asked.id, self._lookups.shown(record), interval))
        except TaskNotFound:
            raise MissingCapability(TASKS_NEEDED) from None

    async def _ended_state(self, record: TaskRecord, caller: AuthContext, intent: GetTask) -> HttpReply:
        """Return the state of an ended task with its result, which is read from the store first."""
        whole = await self._lookups.results.load(record, caller)
        if whole is None:
            raise TaskNotFound
        reply = HttpReply(200, self._modern.task_state(intent.id, whole))
        self._retrievals.note(whole)
        return reply


def _answered(key: str, answer: Answer, _: TaskRecord) -> TaskEvent:
    return InputAnswered(key=key, response=answer)
