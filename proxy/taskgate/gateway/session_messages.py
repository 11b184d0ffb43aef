"""What other processes say of sessions and calls that are alive here, done as if their hosts had come to this one.

Whoever says it has checked that the host may: every word is of a session, or of contexts, that its sender found to be
the caller's. What must not live here: what is said to others (`notes`, `sessions`), and held calls
(`gateway/modern/remote_retry`).
"""

from typing import Final

from taskgate.cluster import messages
from taskgate.cluster.bus import ClusterBus
from taskgate.domain.record import OwnerKey
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.gateway.relay import PlainCallProxy
from taskgate.lifecycle.runner import Runner
from taskgate.protocol.base import DownstreamDialect
from taskgate.protocol.envelope import Notification
from taskgate.protocol.jsonrpc import parse
from taskgate.sessions.registry import HostSessions

DEPTH: Final = 1_000
"""How deep a notification may nest that another process has read before."""


class SessionMessageHandler:
    """Takes what is said of sessions."""

    def __init__(
        self, *, sessions: HostSessions, relaying: PlainCallProxy, runner: Runner, dialect: DownstreamDialect
    ) -> None:
        self._sessions = sessions
        self._relaying = relaying
        self._runner = runner
        self._dialect = dialect

    def hear(self, bus: ClusterBus) -> None:
        """Take it from now on."""
        bus.hear(messages.Ended, self._ended)
        bus.hear(messages.Revived, self._revived)
        bus.hear(messages.Listens, self._listens)
        bus.hear(messages.Published, self._published)
        bus.hear(messages.Asks, self._asks)
        bus.hear(messages.Wanted, self._wanted)
        bus.hear(messages.Answered, self._answered)
        bus.hear(messages.QuestionTold, self._question_told)
        bus.hear(messages.InputTold, self._input_told)
        bus.hear(messages.Cancelled, self._cancelled)
        bus.hear(messages.ServerTold, self._server_told)

    # --- of sessions ------------------------------------------------------------------------------------------------

    def _ended(self, word: messages.Ended, sender: str) -> None:
        self._sessions.forget(word.session)

    def _revived(self, word: messages.Revived, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            host_session.elsewhere.tell(sender)
            host_session.wants.tell(sender)

    def _listens(self, word: messages.Listens, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            host_session.heard_of_stream(sender, is_open=word.is_open)

    def _published(self, word: messages.Published, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            host_session.publish(word.message)

    def _asks(self, word: messages.Asks, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            host_session.elsewhere.ask(word.message, sender)

    def _wanted(self, word: messages.Wanted, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        params = None if host_session is None else host_session.wants.heard(word)
        if host_session is not None and params is not None:
            self._sessions.ask_for(host_session, word.method, params)

    # --- of what hosts say ------------------------------------------------------------------------------------------

    def _answered(self, word: messages.Answered, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            host_session.questions.answer(word.id, word.answer)

    def _question_told(self, word: messages.QuestionTold, sender: str) -> None:
        host_session, notification = self._sessions.peek(word.session), _notification(word.notification)
        if host_session is not None and notification is not None:
            host_session.questions.tell(word.id, notification)

    def _input_told(self, word: messages.InputTold, sender: str) -> None:
        place, notification = self._dialect.input_of(word.id), _notification(word.notification)
        if place is None or notification is None:
            return
        owners = [OwnerKey(context, word.mount) for context in word.contexts]
        question = self._runner.find_question(owners, *place)
        if question is not None:
            question.tell(notification)

    def _cancelled(self, word: messages.Cancelled, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            self._relaying.cancel(host_session, word.request)

    def _server_told(self, word: messages.ServerTold, sender: str) -> None:
        host_session, notification = self._sessions.peek(word.session), _notification(word.notification)
        if host_session is not None and notification is not None:
            host_session.upstream.tell(notification)


def _notification(text: str) -> Notification | None:
    try:
        message = parse(text.encode(), max_depth=DEPTH)
    except (MalformedMessage, UnparsableMessage, ValueError):
        return None
    return message if isinstance(message, Notification) else None
