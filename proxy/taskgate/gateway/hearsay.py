"""What other processes say of sessions and calls that are alive here, done as if their hosts had come to this one.

Whoever says it has checked that the host may: every word is of a session, or of contexts, that its sender found to be
the caller's. What must not live here: what is said to others (`notes`, `sessions`), and held calls (`bringing`).
"""

from typing import Final

from taskgate.cluster import words
from taskgate.cluster.correspondence import Correspondence
from taskgate.domain.record import OwnerKey
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.gateway.relay import Relaying
from taskgate.lifecycle.runner import Runner
from taskgate.protocol.base import DownstreamDialect
from taskgate.protocol.envelope import Notification
from taskgate.protocol.jsonrpc import parse
from taskgate.sessions.registry import HostSessions

DEPTH: Final = 1_000
"""How deep a notification may nest that another process has read before."""


class Hearsay:
    """Takes what is said of sessions."""

    def __init__(
        self, *, sessions: HostSessions, relaying: Relaying, runner: Runner, dialect: DownstreamDialect
    ) -> None:
        self._sessions = sessions
        self._relaying = relaying
        self._runner = runner
        self._dialect = dialect

    def hear(self, correspondence: Correspondence) -> None:
        """Take it from now on."""
        correspondence.hear(words.Ended, self._ended)
        correspondence.hear(words.Revived, self._revived)
        correspondence.hear(words.Listens, self._listens)
        correspondence.hear(words.Published, self._published)
        correspondence.hear(words.Asks, self._asks)
        correspondence.hear(words.Wanted, self._wanted)
        correspondence.hear(words.Answered, self._answered)
        correspondence.hear(words.QuestionTold, self._question_told)
        correspondence.hear(words.InputTold, self._input_told)
        correspondence.hear(words.Cancelled, self._cancelled)
        correspondence.hear(words.ServerTold, self._server_told)

    # --- of sessions ------------------------------------------------------------------------------------------------

    def _ended(self, word: words.Ended, sender: str) -> None:
        self._sessions.forget(word.session)

    def _revived(self, word: words.Revived, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            host_session.elsewhere.tell(sender)
            host_session.wants.tell(sender)

    def _listens(self, word: words.Listens, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            host_session.heard_of_stream(sender, is_open=word.is_open)

    def _published(self, word: words.Published, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            host_session.publish(word.message)

    def _asks(self, word: words.Asks, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            host_session.elsewhere.ask(word.message, sender)

    def _wanted(self, word: words.Wanted, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        params = None if host_session is None else host_session.wants.heard(word)
        if host_session is not None and params is not None:
            self._sessions.ask_for(host_session, word.method, params)

    # --- of what hosts say ------------------------------------------------------------------------------------------

    def _answered(self, word: words.Answered, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            host_session.questions.answer(word.id, word.answer)

    def _question_told(self, word: words.QuestionTold, sender: str) -> None:
        host_session, notification = self._sessions.peek(word.session), _notification(word.notification)
        if host_session is not None and notification is not None:
            host_session.questions.tell(word.id, notification)

    def _input_told(self, word: words.InputTold, sender: str) -> None:
        place, notification = self._dialect.input_of(word.id), _notification(word.notification)
        if place is None or notification is None:
            return
        owners = [OwnerKey(context, word.mount) for context in word.contexts]
        question = self._runner.find_question(owners, *place)
        if question is not None:
            question.tell(notification)

    def _cancelled(self, word: words.Cancelled, sender: str) -> None:
        host_session = self._sessions.peek(word.session)
        if host_session is not None:
            self._relaying.cancel(host_session, word.request)

    def _server_told(self, word: words.ServerTold, sender: str) -> None:
        host_session, notification = self._sessions.peek(word.session), _notification(word.notification)
        if host_session is not None and notification is not None:
            host_session.upstream.tell(notification)


def _notification(text: str) -> Notification | None:
    try:
        message = parse(text.encode(), max_depth=DEPTH)
    except (MalformedMessage, UnparsableMessage, ValueError):
        return None
    return message if isinstance(message, Notification) else None
