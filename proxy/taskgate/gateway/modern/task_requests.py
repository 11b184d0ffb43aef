"""What hosts of the modern era ask of tasks: read, answer, cancel. Of their own alone, whichever era made them.

What must not live here: how a task is made (`calls`), and how hosts are told of it unasked (`subscriptions`). What
holds: nothing here waits for a task, and answers and cancels are acknowledged whatever came of them (M-UPD-1,
M-CANCEL-1).
"""

from contextlib import suppress
from functools import partial

from taskgate.admission.lookups import Lookups
from taskgate.auth.context import AuthContext
from taskgate.domain.events import InputAnswered, TaskEvent
from taskgate.domain.record import TaskRecord
from taskgate.domain.versions import LEGACY
from taskgate.errors import InvalidParams, MissingCapability, TaskAlreadyFinished, TaskNotFound
from taskgate.lifecycle.changes import Changes
from taskgate.lifecycle.runner import Runner
from taskgate.lifecycle.task_service import TaskService
from taskgate.protocol.faults import TASKS_NEEDED
from taskgate.protocol.intents import CancelTask, GetTask
from taskgate.protocol.modern_requests import ModernDialect, OfLegacyTask, UpdateTask
from taskgate.protocol.questions import Answer
from taskgate.protocol.vocabulary import TASKS_CANCEL, TASKS_GET, TASKS_UPDATE
from taskgate.streams.exchange import Exchange, RpcReply


class TaskRequests:
    """Answers `tasks/get`, `tasks/update` and `tasks/cancel`.

    Each raises TaskNotFound for whatever is not the caller's, or not any more, and what else `Lookups.find` raises.
    """

    def __init__(
        self,
        *,
        dialect: ModernDialect,
        tasks: TaskService,
        lookups: Lookups,
        changes: Changes,
        runner: Runner,
    ) -> None:
        self._dialect = dialect
        self._tasks = tasks
        self._lookups = lookups
        self._changes = changes
        self._runner = runner

    async def get(self, exchange: Exchange, caller: AuthContext, mount: str, intent: GetTask) -> RpcReply:
        """The task as it is now, with what its state has to show (M-GET-1)."""
        record = await self._lookups.find(exchange, caller, mount, intent.task, TASKS_GET)
        # As nearly always of a task that is polled: its head says all.
        return await self._shown(record, caller, intent) if record.status.is_terminal else self._told(record, intent)

    async def update(self, exchange: Exchange, caller: AuthContext, mount: str, intent: UpdateTask) -> RpcReply:
        """Take answers to what the task waits with; the first to each counts, whoever else is asked it.

        Those to what is answered, withdrawn or unknown do nothing (M-UPD-2). Raises InvalidParams for one that does not
        fit its question: then none is taken.
        """
        record = await self._lookups.find(exchange, caller, mount, intent.task, TASKS_UPDATE)
        if not all(map(record.has_asked, intent.answers)):
            self._changes.unasked(record.owner)
        asked = self._dialect.outstanding(record)
        answers = {key: answer for key, answer in intent.answers.items() if key in asked}
        if not all(self._dialect.fits(asked[key].method, answer) for key, answer in answers.items()):
            raise InvalidParams("An input response does not match its input request")
        if answers:
            # Before any of them is there: the server is to hear each from who gave it.
            self._runner.answers((record.owner,), record.id, caller)
        for key, answer in answers.items():
            await self._changes.make(record.owner, record.id, partial(_answered, key, answer))
        return RpcReply(self._dialect.acknowledged(intent.id))

    async def cancel(self, exchange: Exchange, caller: AuthContext, mount: str, intent: CancelTask) -> RpcReply:
        """Cancel the task, unless it has ended already."""
        with suppress(TaskAlreadyFinished):
            await self._tasks.cancel(exchange, caller, mount, intent.task, TASKS_CANCEL)
        return RpcReply(self._dialect.acknowledged(intent.id))

    async def of_legacy(self, exchange: Exchange, caller: AuthContext, mount: str, intent: OfLegacyTask) -> RpcReply:
        """The same for a task that was made in the legacy era (AMB-19).

        Raises MissingCapability for any other, whether it is there or not.
        """
        request = intent.request
        method = TASKS_GET if isinstance(request, GetTask) else TASKS_CANCEL
        try:
            record = await self._lookups.find(exchange, caller, mount, request.task, method)
            if record.call.peer.revision not in LEGACY:
                raise MissingCapability(TASKS_NEEDED)
            if isinstance(request, GetTask):
                return await self._shown(record, caller, request)
            return await self.cancel(exchange, caller, mount, request)
        except TaskNotFound:
            raise MissingCapability(TASKS_NEEDED) from None

    async def _shown(self, record: TaskRecord, caller: AuthContext, intent: GetTask) -> RpcReply:
        """What is told of a task whose head was found: its bodies are read where it has ended, and only there."""
        if not record.status.is_terminal:
            return self._told(record, intent)
        whole = await self._lookups.outcomes.whole(record, caller.key)
        if whole is None:
            raise TaskNotFound
        told = self._told(whole, intent)
        self._changes.retrievals.note(whole)
        return told

    def _told(self, record: TaskRecord, intent: GetTask) -> RpcReply:
        return RpcReply(self._dialect.task_state(intent.id, record))


def _answered(key: str, answer: Answer, _: TaskRecord) -> TaskEvent:
    return InputAnswered(key=key, response=answer)
