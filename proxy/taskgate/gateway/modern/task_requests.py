"""The requests of modern hosts about tasks: `TaskRequests`, for `tasks/get`, `tasks/update` and
`tasks/cancel`.

`ModernRequests` calls it. A caller reaches only its own tasks, whichever era created them. No
request waits for the task. Answers and cancellations are acknowledged whatever their effect
(M-UPD-1, M-CANCEL-1).
"""

from contextlib import suppress
from functools import partial

from taskgate.admission.lookups import Lookups
from taskgate.auth.context import AuthContext
from taskgate.domain.events import InputAnswered, TaskEvent
from taskgate.domain.record import TaskRecord
from taskgate.domain.versions import LEGACY
from taskgate.errors import InvalidParams, MissingCapability, TaskAlreadyFinished, TaskNotFound
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.lifecycle.runner import Runner
from taskgate.lifecycle.task_service import TaskService
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.faults import TASKS_NEEDED
from taskgate.protocol.host_requests import CancelTask, GetTask, LegacyTaskRequest, UpdateTask
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.server_messages import Answer
from taskgate.protocol.vocabulary import TASKS_CANCEL, TASKS_GET, TASKS_UPDATE
from taskgate.streams.exchange import Exchange, RpcReply


class TaskRequests:
    """The handler of `tasks/get`, `tasks/update` and `tasks/cancel`.

    Each method raises TaskNotFound for a task that is unknown, expired, or of another caller, and
    what else `Lookups.find` raises.
    """

    def __init__(
        self,
        *,
        dialect: ModernDownstream,
        tasks: TaskService,
        lookups: Lookups,
        transitions: Transitions,
        retrievals: Retrievals,
        runner: Runner,
    ) -> None:
        self._dialect = dialect
        self._tasks = tasks
        self._lookups = lookups
        self._transitions = transitions
        self._retrievals = retrievals
        self._runner = runner

    async def get(self, exchange: Exchange, caller: AuthContext, mount: str, intent: GetTask) -> RpcReply:
        """Return the current state of a task (M-GET-1)."""
        record = await self._lookups.find(exchange, caller, mount, intent.task, TASKS_GET)
        # Nearly always a polled task is still running. Then the record without its bodies is enough.
        return await self._state(record, caller, intent) if record.status.is_terminal else self._encode(record, intent)

    async def update(self, exchange: Exchange, caller: AuthContext, mount: str, intent: UpdateTask) -> RpcReply:
        """Take answers to the task's input requests. The first answer to each counts.

        Answers to what is answered, withdrawn or unknown have no effect (M-UPD-2). Raises
        InvalidParams if an answer does not fit its input request; then none is taken.
        """
        record = await self._lookups.find(exchange, caller, mount, intent.task, TASKS_UPDATE)
        if not all(map(record.has_asked, intent.answers)):
            self._transitions.unasked(record.owner)
        asked = self._dialect.open_inputs(record)
        answers = {key: answer for key, answer in intent.answers.items() if key in asked}
        if not all(self._dialect.is_valid_answer(asked[key].method, answer) for key, answer in answers.items()):
            raise InvalidParams("An input response does not match its input request")
        if answers:
            # Before the first answer is stored, because storing it sends it to the server. The server
            # gets it on behalf of the caller who gave it.
            self._runner.answers((record.owner,), record.id, caller)
        for key, answer in answers.items():
            await self._transitions.make(record.owner, record.id, partial(_answered, key, answer))
        return RpcReply(self._dialect.acknowledgement(intent.id))

    async def cancel(self, exchange: Exchange, caller: AuthContext, mount: str, intent: CancelTask) -> RpcReply:
        """Cancel the task, unless it has ended."""
        with suppress(TaskAlreadyFinished):
            await self._tasks.cancel(exchange, caller, mount, intent.task, TASKS_CANCEL)
        return RpcReply(self._dialect.acknowledgement(intent.id))

    async def of_legacy(
        self, exchange: Exchange, caller: AuthContext, mount: str, intent: LegacyTaskRequest
    ) -> RpcReply:
        """Serve `tasks/get` or `tasks/cancel` of a host that does not declare tasks (AMB-19).

        Only a task of the legacy era is served. Raises MissingCapability for any other task,
        whether it exists or not.
        """
        request = intent.request
        method = TASKS_GET if isinstance(request, GetTask) else TASKS_CANCEL
        try:
            record = await self._lookups.find(exchange, caller, mount, request.task, method)
            if record.call.peer.revision not in LEGACY:
                raise MissingCapability(TASKS_NEEDED)
            if isinstance(request, GetTask):
                return await self._state(record, caller, request)
            return await self.cancel(exchange, caller, mount, request)
        except TaskNotFound:
            raise MissingCapability(TASKS_NEEDED) from None

    async def _state(self, record: TaskRecord, caller: AuthContext, intent: GetTask) -> RpcReply:
        """Return the state of a task; if it has ended, read its result from the store first."""
        if not record.status.is_terminal:
            return self._encode(record, intent)
        whole = await self._lookups.results.load(record, caller.key)
        if whole is None:
            raise TaskNotFound
        reply = self._encode(whole, intent)
        self._retrievals.note(whole)
        return reply

    def _encode(self, record: TaskRecord, intent: GetTask) -> RpcReply:
        """Encode the state of a task; an ended one has its bodies."""
        return RpcReply(self._dialect.task_state(intent.id, record))


def _answered(key: str, answer: Answer, _: TaskRecord) -> TaskEvent:
    return InputAnswered(key=key, response=answer)
