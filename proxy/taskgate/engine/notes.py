"""What hosts say that nobody answers: cancels of plain calls, answers to questions, progress, news for servers.

What must not live here: requests (`gateway`). What holds: what names something that is not there, not the caller's, or
over, does nothing, and its sender cannot tell which it was (T51).
"""

from taskgate.auth.context import AuthContext
from taskgate.dialects.base import (
    AnswerInput,
    AnswerQuestion,
    CancelCall,
    DownstreamDialect,
    Intent,
    TellProgress,
    TellServer,
)
from taskgate.engine.relay import Relaying
from taskgate.engine.runner import Runner
from taskgate.engine.sessions import HostSession
from taskgate.engine.telling.following import Following


class Notes:
    """Takes note of what hosts say."""

    def __init__(self, *, following: Following, relaying: Relaying, runner: Runner, dialect: DownstreamDialect) -> None:
        self._following = following
        self._relaying = relaying
        self._runner = runner
        self._dialect = dialect

    async def take(self, caller: AuthContext, host_session: HostSession, intent: Intent) -> None:
        """Act on a notification or a response. Raises StoreUnavailable where an answer could not be kept."""
        match intent:
            case CancelCall(request=request):
                self._relaying.cancel(host_session, request)
            case AnswerQuestion(id=id_, answer=answer):
                host_session.questions.answer(id_, answer)
            case AnswerInput():
                mount = host_session.mount.name
                self._runner.answers(caller.owners(mount), intent.task, caller)
                await self._following.answer(caller, mount, intent)
            case TellProgress():
                self._tell_progress(caller, host_session, intent)
            case TellServer(notification=notification):
                host_session.upstream.tell(notification)

    def _tell_progress(self, caller: AuthContext, host_session: HostSession, told: TellProgress) -> None:
        place = self._dialect.input_of(told.id)
        if place is None:
            host_session.questions.tell(told.id, told.notification)
            return
        question = self._runner.find_question(caller.owners(host_session.mount.name), *place)
        if question is not None:
            question.tell(told.notification)
