"""Messages of legacy hosts that need no answer: `ClientNotifications`, and `SessionMessageHandler`
for those that came to another replica.

They are cancellations of plain calls, answers to questions of servers, progress of those answers,
and notifications for the server. A message about something unknown, finished, or of another caller
has no effect. Its sender cannot tell these cases apart (T51). If nothing in this process matches,
the message goes to the other replicas over the cluster bus:

    replica B: notifications/cancelled of request 7  →  bus: RequestCancelled(session, 7)
    replica A: runs request 7, and cancels it

The sender has checked that the caller owns the session or the contexts that a message names. A
message of a host has the effect here that it would have had if the host had sent it to this
replica. Sessions send such messages too.

There are two kinds of questions. Those of plain calls are in their session (`sessions.questions`).
Those of tasks are input requests, whose ids name the task.
"""

from typing import Final

from taskgate.auth.context import AuthContext
from taskgate.cluster import messages
from taskgate.cluster.bus import ClusterBus, is_replica_name
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord
from taskgate.errors import MalformedMessage, StoreUnavailable, UnparsableMessage
from taskgate.gateway.calls import Calls
from taskgate.gateway.eras import DecodedMessage
from taskgate.gateway.task_requests import HandleRequests
from taskgate.lifecycle.input_delivery import InputDelivery
from taskgate.lifecycle.runner import Runner
from taskgate.protocol.host_requests import (
    AnswerInput,
    AnswerQuestion,
    CancelCall,
    NotifyServer,
    ReportProgress,
)
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import Notification
from taskgate.sessions.host_session import HostSession
from taskgate.sessions.questions import asking_replica
from taskgate.sessions.registry import HostSessions

DEPTH: Final = 1_000
"""Nesting depth that is accepted from a replica, which has parsed the text before."""


class ClientNotifications:
    """The handler of notifications and responses of legacy hosts.

    `bus` leads to the other replicas; None if there are none.
    """

    def __init__(
        self,
        *,
        input_delivery: InputDelivery,
        calls: Calls,
        runner: Runner,
        handles: HandleRequests,
        dialect: LegacyDownstream,
        bus: ClusterBus | None = None,
    ) -> None:
        self._bus = bus
        self._handles = handles
        self._input_delivery = input_delivery
        self._calls = calls
        self._runner = runner
        self._dialect = dialect

    async def take(self, request: DecodedMessage, host_session: HostSession) -> None:
        """Act on a notification or a response.

        Raises StoreUnavailable if the answer to an input request of a task could not be stored.
        """
        caller = request.caller
        match request.intent:
            case CancelCall(request=id_):
                if (scope := self._calls.cancel(host_session, id_)) is not None:
                    await scope.end()
                else:
                    self._pass_on(messages.RequestCancelled(host_session.id, id_))
            case AnswerQuestion(id=id_, answer=answer):
                if not host_session.questions.answer(id_, answer):
                    self._pass_to_asking(id_, messages.QuestionAnswer(host_session.id, id_, answer))
            case AnswerInput() as intent:
                record = await self._answerable(request, host_session, intent.task)
                if record is not None:
                    # Before the answer is stored: the server gets it on behalf of the caller who gave it.
                    self._runner.answers((record.owner,), record.id, caller)
                    await self._input_delivery.answer(record, intent)
            case ReportProgress() as intent:
                await self._tell_progress(request, host_session, intent)
            case NotifyServer(notification=notification):
                # To all servers: each replica in which the session is active has an upstream session.
                host_session.upstream.tell(notification)
                self._pass_on(messages.ServerNotification(host_session.id, notification.text))

    def is_awaited(self, caller: AuthContext, host_session: HostSession, intent: object) -> bool:
        """Whether a response answers a question that is open in this process."""
        match intent:
            case AnswerQuestion(id=id_):
                return host_session.questions.is_open(id_)
            case AnswerInput(task=task, key=key):
                owners = caller.owners(host_session.mount.name)
                return self._runner.find_question(owners, task, key) is not None
        return False

    async def _answerable(self, request: DecodedMessage, host_session: HostSession, task: TaskId) -> TaskRecord | None:
        """Return the head of a task whose questions the host may answer; None for any other.

        Of a call that was handed off, only a host may that its handle is good for. Raises StoreUnavailable.
        """
        record = await self._input_delivery.answerable(request.caller, host_session.mount.name, task)
        if record is None or not self._handles.is_good(record, request.exchange, host_session.id, host_session.peer):
            return None
        return record

    async def _tell_progress(self, request: DecodedMessage, host_session: HostSession, told: ReportProgress) -> None:
        """Send the server the progress of an answer that its host still works on."""
        task_and_key, text = self._dialect.input_of(told.id), told.notification.text
        if task_and_key is None:
            if not host_session.questions.on_progress(told.id, told.notification):
                self._pass_to_asking(told.id, messages.QuestionProgress(host_session.id, told.id, text))
            return
        try:
            record = await self._answerable(request, host_session, task_and_key[0])
        except StoreUnavailable:
            # Like progress that is lost on its way.
            return
        if record is None:
            return
        question = self._runner.find_question((record.owner,), *task_and_key)
        if question is not None:
            question.tell(told.notification)
        else:
            self._pass_on(messages.InputProgress(record.owner.mount, [record.owner.context], told.id, text))

    def _pass_on(self, message: messages.Message) -> None:
        """Send a message to all other replicas."""
        if self._bus is not None:
            self._bus.send(message)

    def _pass_to_asking(self, id: str, message: messages.Message) -> None:
        """Send a message to the replica that is named in the id of a question, because it asked it.

        The host may have made up the id, so the name is checked first.
        """
        asking = asking_replica(id)
        if self._bus is not None and asking is not None and is_replica_name(asking):
            self._bus.send(message, to=asking)


# --- messages that came to another replica ----------------------------------------------------------------------------


class SessionMessageHandler:
    """The handler of other replicas' messages about sessions and calls.

    A message about a session that is not active here has no effect. Those about held calls are
    handled by `RemoteRetries`.
    """

    def __init__(self, *, sessions: HostSessions, calls: Calls, runner: Runner, dialect: LegacyDownstream) -> None:
        self._sessions = sessions
        self._calls = calls
        self._runner = runner
        self._dialect = dialect

    def subscribe(self, bus: ClusterBus) -> None:
        """Subscribe to the messages; called once at start. The bus then calls the methods below."""
        bus.subscribe(messages.SessionEnded, self._on_session_ended)
        bus.subscribe(messages.SessionRevived, self._on_session_revived)
        bus.subscribe(messages.GetStreamState, self._on_get_stream_state)
        bus.subscribe(messages.GetStreamMessage, self._on_get_stream_message)
        bus.subscribe(messages.GetStreamQuestion, self._on_get_stream_question)
        bus.subscribe(messages.SessionSetting, self._on_setting)
        bus.subscribe(messages.QuestionAnswer, self._on_answer)
        bus.subscribe(messages.QuestionProgress, self._on_question_progress)
        bus.subscribe(messages.InputProgress, self._on_input_progress)
        bus.subscribe(messages.RequestCancelled, self._on_cancelled)
        bus.subscribe(messages.ServerNotification, self._on_server_notification)

    # --- sessions -----------------------------------------------------------------------------------------------------

    def _on_session_ended(self, message: messages.SessionEnded, sender: str) -> None:
        self._sessions.on_ended(message.session)

    def _on_session_revived(self, message: messages.SessionRevived, sender: str) -> None:
        host_session = self._sessions.get(message.session)
        if host_session is not None:
            # The sender has just made the session active, and knows neither streams nor settings.
            host_session.is_known_elsewhere = True
            host_session.remote_streams.announce(sender)
            host_session.settings.announce(sender)

    def _on_get_stream_state(self, message: messages.GetStreamState, sender: str) -> None:
        host_session = self._sessions.get(message.session)
        if host_session is not None:
            host_session.on_remote_stream(sender, is_open=message.is_open)

    def _on_get_stream_message(self, message: messages.GetStreamMessage, sender: str) -> None:
        host_session = self._sessions.get(message.session)
        if host_session is not None:
            host_session.publish(message.message)

    def _on_get_stream_question(self, message: messages.GetStreamQuestion, sender: str) -> None:
        host_session = self._sessions.get(message.session)
        if host_session is not None:
            host_session.remote_streams.ask_locally(message.message, sender)

    def _on_setting(self, message: messages.SessionSetting, sender: str) -> None:
        host_session = self._sessions.get(message.session)
        params = None if host_session is None else host_session.settings.on_remote_change(message)
        if host_session is not None and params is not None:
            self._sessions.send_in_background(host_session, message.method, params)

    # --- messages of hosts --------------------------------------------------------------------------------------------

    def _on_answer(self, message: messages.QuestionAnswer, sender: str) -> None:
        host_session = self._sessions.get(message.session)
        if host_session is not None:
            host_session.questions.answer(message.id, message.answer)

    def _on_question_progress(self, message: messages.QuestionProgress, sender: str) -> None:
        host_session, notification = self._sessions.get(message.session), _notification(message.notification)
        if host_session is not None and notification is not None:
            host_session.questions.on_progress(message.id, notification)

    def _on_input_progress(self, message: messages.InputProgress, sender: str) -> None:
        task_and_key, notification = self._dialect.input_of(message.id), _notification(message.notification)
        if task_and_key is None or notification is None:
            return
        owners = [OwnerKey(context, message.mount) for context in message.contexts]
        question = self._runner.find_question(owners, *task_and_key)
        if question is not None:
            question.tell(notification)

    def _on_cancelled(self, message: messages.RequestCancelled, sender: str) -> None:
        host_session = self._sessions.get(message.session)
        if host_session is not None:
            self._calls.cancel(host_session, message.request)

    def _on_server_notification(self, message: messages.ServerNotification, sender: str) -> None:
        host_session, notification = self._sessions.get(message.session), _notification(message.notification)
        if host_session is not None and notification is not None:
            host_session.upstream.tell(notification)


def _notification(text: str) -> Notification | None:
    """Parse the text of a notification; None if it is not one."""
    try:
        message = parse(text.encode(), max_depth=DEPTH)
    except (MalformedMessage, UnparsableMessage, ValueError):
        return None
    return message if isinstance(message, Notification) else None
