"""The messages of legacy hosts that need no answer: `ClientNotifications`.

They are cancellations of plain calls, answers to questions of servers, progress of those answers,
and notifications for the server. `InSessionMessages` passes their intents to `take`. A message
about something unknown, finished, or of another caller has no effect. Its sender cannot tell these
cases apart (T51). If nothing in this process matches, the message goes to the other replicas, where
`SessionMessageHandler` receives it.

There are two kinds of questions. Those of plain calls are in their session (`sessions.questions`).
Those of tasks are input requests, whose ids name the task.
"""

from taskgate.auth.context import AuthContext
from taskgate.cluster.bus import ClusterBus, is_replica_name
from taskgate.cluster.messages import (
    InputProgress,
    Message,
    QuestionAnswer,
    QuestionProgress,
    RequestCancelled,
    ServerNotification,
)
from taskgate.gateway.relay import PlainCallProxy
from taskgate.lifecycle.result_wait import ResultWaiter
from taskgate.lifecycle.runner import Runner
from taskgate.protocol.host_requests import (
    AnswerInput,
    AnswerQuestion,
    CancelCall,
    LegacyIntent,
    NotifyServer,
    ReportProgress,
)
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.sessions.host_session import HostSession
from taskgate.sessions.questions import asking_replica


class ClientNotifications:
    """The handler of notifications and responses of legacy hosts.

    `bus` leads to the other replicas; None if there are none.
    """

    def __init__(
        self,
        *,
        following: ResultWaiter,
        relaying: PlainCallProxy,
        runner: Runner,
        dialect: LegacyDownstream,
        bus: ClusterBus | None = None,
    ) -> None:
        self._bus = bus
        self._following = following
        self._relaying = relaying
        self._runner = runner
        self._dialect = dialect

    async def take(self, caller: AuthContext, host_session: HostSession, intent: LegacyIntent) -> None:
        """Act on a notification or a response.

        Raises StoreUnavailable if the answer to an input request of a task could not be stored.
        """
        match intent:
            case CancelCall(request=request):
                if not self._relaying.cancel(host_session, request):
                    self._pass_on(RequestCancelled(host_session.id, request))
            case AnswerQuestion(id=id_, answer=answer):
                if not host_session.questions.answer(id_, answer):
                    self._pass_to_asking(id_, QuestionAnswer(host_session.id, id_, answer))
            case AnswerInput():
                mount = host_session.mount.name
                # Before the answer is stored: the server gets it on behalf of the caller who gave it.
                self._runner.answers(caller.owners(mount), intent.task, caller)
                await self._following.answer(caller, mount, intent)
            case ReportProgress():
                self._tell_progress(caller, host_session, intent)
            case NotifyServer(notification=notification):
                # To all servers: each replica in which the session is active has an upstream session.
                host_session.upstream.tell(notification)
                self._pass_on(ServerNotification(host_session.id, notification.text))

    def _tell_progress(self, caller: AuthContext, host_session: HostSession, told: ReportProgress) -> None:
        """Send the server the progress of an answer that its host still works on."""
        task_and_key, text = self._dialect.input_of(told.id), told.notification.text
        if task_and_key is None:
            if not host_session.questions.on_progress(told.id, told.notification):
                self._pass_to_asking(told.id, QuestionProgress(host_session.id, told.id, text))
            return
        owners = caller.owners(host_session.mount.name)
        question = self._runner.find_question(owners, *task_and_key)
        if question is not None:
            question.tell(told.notification)
        else:
            self._pass_on(InputProgress(owners[0].mount, [owner.context for owner in owners], told.id, text))

    def _pass_on(self, message: Message) -> None:
        """Send a message to all other replicas."""
        if self._bus is not None:
            self._bus.send(message)

    def _pass_to_asking(self, id: str, message: Message) -> None:
        """Send a message to the replica that is named in the id of a question, because it asked it.

        The host may have made up the id, so the name is checked first.
        """
        asking = asking_replica(id)
        if self._bus is not None and asking is not None and is_replica_name(asking):
            self._bus.send(message, to=asking)
