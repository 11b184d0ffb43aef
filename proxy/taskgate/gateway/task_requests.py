"""The requests of hosts about tasks: `TaskRequests`, for `tasks/*` of both eras.

A caller reaches only its own tasks, whichever era created them. The eras see tasks differently:

| request | legacy | modern |
|---|---|---|
| `tasks/get` | the state | the state, with the result of an ended task |
| `tasks/cancel` | the cancelled state, or an error | an acknowledgement in any case (M-CANCEL-1) |
| `tasks/result`, `tasks/list` | served | - |
| `tasks/update` | - | an acknowledgement in any case (M-UPD-1) |

The dialect of the host says which it is. Only `tasks/result` waits for the task.
"""

from collections.abc import Awaitable
from functools import partial
from typing import Final

from taskgate.admission.lookups import Lookups
from taskgate.auth.context import AuthContext
from taskgate.domain.events import InputAnswered, TaskEvent
from taskgate.domain.record import TaskId, TaskRecord
from taskgate.domain.versions import LEGACY
from taskgate.errors import InvalidParams, MissingCapability, TaskAlreadyFinished, TaskNotFound
from taskgate.gateway.eras import DecodedMessage
from taskgate.lifecycle.result_wait import ResultWaiter
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.lifecycle.runner import Runner
from taskgate.lifecycle.task_service import TaskService
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.faults import TASKS_NEEDED
from taskgate.protocol.host_requests import (
    AwaitTask,
    CancelTask,
    GetTask,
    LegacyTaskRequest,
    ListTasks,
    UpdateTask,
)
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.server_messages import Answer
from taskgate.protocol.vocabulary import TASKS_CANCEL, TASKS_GET, TASKS_RESULT, TASKS_UPDATE
from taskgate.streams.exchange import HttpReply

ABOUT_A_TASK: Final = (GetTask, AwaitTask, UpdateTask, CancelTask, LegacyTaskRequest)
"""The requests about one task. The access rules apply to the tool of that task, when it is found."""


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
    ) -> None:
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
                session.last_used = now
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
        """Answer a poll whose task the store returns only after a wait, or not at all."""
        record = await self._lookups.find(request.exchange, request.caller, request.mount.name, task, TASKS_GET)
        reply = self.poll(request, now, record)
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
            case UpdateTask() as intent:
                return await self._update(request, intent)
            case LegacyTaskRequest() as intent:
                return await self._of_legacy(request, intent)
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
        caller, dialect = request.caller, self._modern
        record = await self._lookups.find(request.exchange, caller, request.mount.name, intent.task, TASKS_UPDATE)
        if not all(map(record.has_asked, intent.answers)):
            self._transitions.unasked(record.owner)
        asked = dialect.open_inputs(record)
        answers = {key: answer for key, answer in intent.answers.items() if key in asked}
        if not all(dialect.is_valid_answer(asked[key].method, answer) for key, answer in answers.items()):
            raise InvalidParams("An input response does not match its input request")
        if answers:
            # Before the first answer is stored, because storing it sends it to the server. The server
            # gets it on behalf of the caller who gave it.
            self._runner.answers((record.owner,), record.id, caller)
        for key, answer in answers.items():
            await self._transitions.make(record.owner, record.id, partial(_answered, key, answer))
        return HttpReply(200, dialect.acknowledgement(intent.id))

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
            return HttpReply(200, self._modern.task_state(asked.id, record, interval))
        except TaskNotFound:
            raise MissingCapability(TASKS_NEEDED) from None

    async def _ended_state(self, record: TaskRecord, caller: AuthContext, intent: GetTask) -> HttpReply:
        """Return the state of an ended task with its result, which is read from the store first."""
        whole = await self._lookups.results.load(record, caller.key)
        if whole is None:
            raise TaskNotFound
        reply = HttpReply(200, self._modern.task_state(intent.id, whole))
        self._retrievals.note(whole)
        return reply


def _answered(key: str, answer: Answer, _: TaskRecord) -> TaskEvent:
    return InputAnswered(key=key, response=answer)
