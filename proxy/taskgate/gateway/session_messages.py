"""The handler of other replicas' messages about sessions and calls: `SessionMessageHandler`.

A host may send a message to any replica. That replica forwards what concerns another one over the
cluster bus, for example:

    replica B: notifications/cancelled of request 7  →  bus: RequestCancelled(session, 7)
    replica A: runs request 7, and cancels it

`ClientNotifications` and the sessions send these messages. The sender has checked that the caller
owns the session or the contexts that a message names. A message of a host has the effect here that
it would have had if the host had sent it to this replica. A message about a session that is not
active here has none. The messages of held calls are handled by `RemoteRetries`.
"""

from typing import Final

from taskgate.cluster import messages
from taskgate.cluster.bus import ClusterBus
from taskgate.domain.record import OwnerKey
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.gateway.relay import PlainCallProxy
from taskgate.lifecycle.runner import Runner
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import Notification
from taskgate.sessions.registry import HostSessions

DEPTH: Final = 1_000
"""Nesting depth that is accepted from a replica, which has parsed the text before."""


class SessionMessageHandler:
    """The subscriber of messages about sessions."""

    def __init__(
        self, *, sessions: HostSessions, relaying: PlainCallProxy, runner: Runner, dialect: LegacyDownstream
    ) -> None:
        self._sessions = sessions
        self._relaying = relaying
        self._runner = runner
        self._dialect = dialect

    def hear(self, bus: ClusterBus) -> None:
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
            self._relaying.cancel(host_session, message.request)

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
