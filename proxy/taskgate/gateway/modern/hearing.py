"""The listener of one request of a modern host: `RequestListener`.

One is created for each wait of a request, mostly by `Calls`. The server's notifications go to the
host on the request's own event stream, or are dropped if the host accepts none. Questions that come
here are refused, because this era has no questions on a stream. A call that can be held has an
`InflightCall` as its listener, which collects questions and passes only notifications on to here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from taskgate.domain.record import RequestId
from taskgate.gateway.host_listener import HostListener
from taskgate.protocol.extensions import merge_capabilities
from taskgate.protocol.messages import Notification
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.server_messages import progress_done
from taskgate.protocol.vocabulary import NOTE_MESSAGE, NOTE_PROGRESS, RELAYED_NOTICES
from taskgate.upstream.call_listener import ServerQuestion

_OF_CORE: Final = RELAYED_NOTICES | {NOTE_PROGRESS}


@dataclass(slots=True, eq=False)
class RequestListener(HostListener):
    """The `CallListener` of a request.

    Progress is sent with the host's token, if it gave one, and its number grows with every message
    (M-PROG-1). A log message is sent if `level`, the request's log level, allows it (M-LOG-1). Notifications
    of extensions are forwarded (X-EXT-23); if they name a stream, that is `id`, the request's id.
    Everything else is dropped. Keep-alives are sent within its `with` block. `passes_rounds` is
    whether a modern server's input requests go to the host unchanged.
    """

    dialect: ModernDownstream
    level: str | None
    id: RequestId | None = None
    passes_rounds: bool = False
    missing: Mapping[str, Any] = field(default_factory=dict, init=False)
    """The capabilities that the host did not declare and the server asked for."""

    def on_notification(self, notification: Notification) -> None:
        if not self.exchange.head.accepts_stream:
            return
        if self._is_wanted(notification):
            message = self.dialect.notification(notification, self.token)
        elif (reworded := self.reword(notification)) is not None:
            message = reworded
        elif notification.method not in _OF_CORE:
            message = self.dialect.notification(notification, None, self.id)
        else:
            return
        self._has_sent = True
        self.exchange.stream().send(message)

    def asked(self, question: ServerQuestion) -> None:
        question.refuse()

    def refused(self, required: Mapping[str, Any]) -> None:
        self.missing = merge_capabilities(self.missing, required)

    def _is_wanted(self, notification: Notification) -> bool:
        """Return whether the host gets a progress or log notification as it is."""
        if notification.method == NOTE_PROGRESS:
            return self.token is not None and self._grows(notification)
        return notification.method == NOTE_MESSAGE and self.dialect.wants_log(notification, self.level)

    def _grows(self, notification: Notification) -> bool:
        """Return whether the number of a progress notification grows; if so, remember it."""
        done = progress_done(notification)
        if done is None or (self._last_progress is not None and done <= self._last_progress):
            return False
        self._last_progress = done
        return True
