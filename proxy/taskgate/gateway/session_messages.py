"""The handler of other replicas' messages about sessions and calls: `SessionMessageHandler`.

A host may send a message to any replica. That replica forwards what concerns another one over the
cluster bus, for example:

    replica B: notifications/cancelled of request 7  →  bus: RequestCancelled(session, 7)
    replica A: runs request 7, and cancels it

The sender has checked that the caller owns the session or the contexts of its message. Here each
message has the effect of the host's own message. `ClientNotifications` and the sessions send them.
The messages of held calls are handled by `RemoteRetries`.
"""

from typing import Final

from taskgate.cluster import messages
from taskgate.cluster.bus import ClusterBus
from taskgate.domain.record import OwnerKey
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.gateway.relay import PlainCallProxy
from taskgate.lifecycle.runner import Runner
from taskgate.protocol.dialects import LegacyDownstreamDialect
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Notification
from taskgate.sessions.registry import HostSessions

DEPTH: Final = 1_000
"""Nesting depth that is accepted from a replica, which has parsed the text before."""


class SessionMessageHandler:
    """The subscriber of messages about sessions."""

    def __init__(
        self, *, sessions: HostSessions, relaying: PlainCallProxy, runner: Runner, dialect: LegacyDownstreamDialect
    ) -> None:
        self._sessions = sessions
        self._relaying = relaying
        self._runner = runner
        self._dialect = dialect

    def hear(self, bus: ClusterBus) -> None:
        """Subscribe to the messages."""
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

    # --- sessions -----------------------------------------------------------------------------------------------------

    def _ended(self, word: messages.SessionEnded, sender: str) -> None:
        self._sessions.on_ended(word.session)

    def _revived(self, word: messages.SessionRevived, sender: str) -> None:
        host_session = self._sessions.get(word.session)
        if host_session is not None:
            host_session.remote_streams.announce(sender)
            host_session.settings.announce(sender)

    def _listens(self, word: messages.GetStreamState, sender: str) -> None:
        host_session = self._sessions.get(word.session)
        if host_session is not None:
            host_session.on_remote_stream(sender, is_open=word.is_open)

    def _published(self, word: messages.GetStreamMessage, sender: str) -> None:
        host_session = self._sessions.get(word.session)
        if host_session is not None:
            host_session.publish(word.message)

    def _asks(self, word: messages.GetStreamQuestion, sender: str) -> None:
        host_session = self._sessions.get(word.session)
        if host_session is not None:
            host_session.remote_streams.ask_locally(word.message, sender)

    def _wanted(self, word: messages.SessionSetting, sender: str) -> None:
        host_session = self._sessions.get(word.session)
        params = None if host_session is None else host_session.settings.on_remote_change(word)
        if host_session is not None and params is not None:
            self._sessions.send_in_background(host_session, word.method, params)

    # --- messages of hosts --------------------------------------------------------------------------------------------

    def _answered(self, word: messages.QuestionAnswer, sender: str) -> None:
        host_session = self._sessions.get(word.session)
        if host_session is not None:
            host_session.questions.answer(word.id, word.answer)

    def _question_told(self, word: messages.QuestionProgress, sender: str) -> None:
        host_session, notification = self._sessions.get(word.session), _notification(word.notification)
        if host_session is not None and notification is not None:
            host_session.questions.on_progress(word.id, notification)

    def _input_told(self, word: messages.InputProgress, sender: str) -> None:
        place, notification = self._dialect.input_of(word.id), _notification(word.notification)
        if place is None or notification is None:
            return
        owners = [OwnerKey(context, word.mount) for context in word.contexts]
        question = self._runner.find_question(owners, *place)
        if question is not None:
            question.tell(notification)

    def _cancelled(self, word: messages.RequestCancelled, sender: str) -> None:
        host_session = self._sessions.get(word.session)
        if host_session is not None:
            self._relaying.cancel(host_session, word.request)

    def _server_told(self, word: messages.ServerNotification, sender: str) -> None:
        host_session, notification = self._sessions.get(word.session), _notification(word.notification)
        if host_session is not None and notification is not None:
            host_session.upstream.tell(notification)


def _notification(text: str) -> Notification | None:
    try:
        message = parse(text.encode(), max_depth=DEPTH)
    except (MalformedMessage, UnparsableMessage, ValueError):
        return None
    return message if isinstance(message, Notification) else None
