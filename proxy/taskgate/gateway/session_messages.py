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
        bus.subscribe(messages.SessionEnded, self._ended)
        bus.subscribe(messages.SessionRevived, self._revived)
        bus.subscribe(messages.GetStreamState, self._listens)
        bus.subscribe(messages.GetStreamMessage, self._published)
        bus.subscribe(messages.GetStreamQuestion, self._asks)
        bus.subscribe(messages.SessionSetting, self._wanted)
        bus.subscribe(messages.QuestionAnswer, self._answered)
        bus.subscribe(messages.QuestionProgress, self._question_told)
        bus.subscribe(messages.InputProgress, self._input_told)
        bus.subscribe(messages.RequestCancelled, self._cancelled)
        bus.subscribe(messages.ServerNotification, self._server_told)

    # --- of sessions ------------------------------------------------------------------------------------------------

    def _ended(self, word: messages.SessionEnded, sender: str) -> None:
        self._sessions.forget(word.session)

    def _revived(self, word: messages.SessionRevived, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            host_session.elsewhere.announce(sender)
            host_session.wants.announce(sender)

    def _listens(self, word: messages.GetStreamState, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            host_session.heard_of_stream(sender, is_open=word.is_open)

    def _published(self, word: messages.GetStreamMessage, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            host_session.publish(word.message)

    def _asks(self, word: messages.GetStreamQuestion, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            host_session.elsewhere.ask_locally(word.message, sender)

    def _wanted(self, word: messages.SessionSetting, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        params = None if host_session is None else host_session.wants.on_remote_change(word)
        if host_session is not None and params is not None:
            self._sessions.ask_for(host_session, word.method, params)

    # --- of what hosts say ------------------------------------------------------------------------------------------

    def _answered(self, word: messages.QuestionAnswer, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            host_session.questions.answer(word.id, word.answer)

    def _question_told(self, word: messages.QuestionProgress, sender: str) -> None:
        host_session, notification = self._sessions.peek(word.session), _notification(word.notification)
        if host_session is not None and notification is not None:
            host_session.questions.tell(word.id, notification)

    def _input_told(self, word: messages.InputProgress, sender: str) -> None:
        place, notification = self._dialect.input_of(word.id), _notification(word.notification)
        if place is None or notification is None:
            return
        owners = [OwnerKey(context, word.mount) for context in word.contexts]
        question = self._runner.find_question(owners, *place)
        if question is not None:
            question.tell(notification)

    def _cancelled(self, word: messages.RequestCancelled, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            self._relaying.cancel(host_session, word.request)

    def _server_told(self, word: messages.ServerNotification, sender: str) -> None:
        host_session, notification = self._sessions.peek(word.session), _notification(word.notification)
        if host_session is not None and notification is not None:
            host_session.upstream.tell(notification)


def _notification(text: str) -> Notification | None:
    try:
        message = parse(text.encode(), max_depth=DEPTH)
    except (MalformedMessage, UnparsableMessage, ValueError):
        return None
    return message if isinstance(message, Notification) else None
