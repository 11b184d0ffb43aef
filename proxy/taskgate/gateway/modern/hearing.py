"""The listener of one request of a modern host: `RequestListener`.

`ResponseWaiter` creates it. The server's messages go to the host on the request's own event stream,
or are dropped if the host accepts none. Questions are refused, because this era has no questions on
a stream; `InflightCall` collects those of calls that can be held.
"""

from collections.abc import Awaitable, Mapping
from typing import Any, Final, Self

from taskgate.domain.record import RequestId
from taskgate.gateway.relay import STEP
from taskgate.protocol.dialects import ModernDownstreamDialect
from taskgate.protocol.extensions import merge_capabilities
from taskgate.protocol.host_requests import RequestMeta
from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import progress_done, text_of_progress
from taskgate.protocol.vocabulary import NOTE_MESSAGE, NOTE_PROGRESS, RELAYED_NOTICES
from taskgate.streams.exchange import Exchange
from taskgate.streams.keepalive import Keepalive
from taskgate.upstream.call_listener import ServerQuestion, UnsavedCallListener

_OF_CORE: Final = RELAYED_NOTICES | {NOTE_PROGRESS}


class RequestListener(UnsavedCallListener):
    """The `CallListener` of a request, also the context manager that ends its keep-alive.

    Progress has the host's token and grows with every message (M-PROG-1). A log message is sent if
    the request's log level allows it (M-LOG-1). Notifications of extensions are forwarded
    (X-EXT-23); if they name a stream, that is `id`, the request's id. Everything else is dropped.
    """

    __slots__ = (
        "_dialect",
        "_done",
        "_exchange",
        "_id",
        "_level",
        "_spoke",
        "_token",
        "missing",
        "passes_rounds",
        "pulse",
    )

    def __init__(
        self,
        exchange: Exchange,
        dialect: ModernDownstreamDialect,
        said: RequestMeta,
        id: RequestId | None = None,
        *,
        passes_rounds: bool = False,
    ) -> None:
        self._exchange = exchange
        self._dialect = dialect
        self._id = id
        self._token = said.progress_token
        self._level = said.log_level
        self._done: float | None = None
        self._spoke = False
        self.passes_rounds = passes_rounds
        self.missing: Mapping[str, Any] = {}
        """The capabilities that the host lacks and the server asked for."""
        self.pulse: Keepalive | None = None
        """The keep-alive of the answer, stopped at the end of the `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Dropped, too, because it refers to this object.
        pulse, self.pulse = self.pulse, None
        if pulse is not None:
            pulse.stop()

    def on_notification(self, notification: Notification) -> None:
        if not self._exchange.head.accepts_stream:
            return
        if self._concerns(notification):
            message = self._dialect.notification(notification, self._token)
        elif (
            self._token is not None and self._done is not None and (words := text_of_progress(notification)) is not None
        ):
            # The number is the gateway's own, above what its keep-alives have used.
            self._done += STEP
            message = self._dialect.progress(self._token, self._done, words)
        elif notification.method not in _OF_CORE:
            message = self._dialect.notification(notification, None, self._id)
        else:
            return
        self._spoke = True
        self._exchange.stream().send(message)

    def clog(self) -> Awaitable[None] | None:
        return self._exchange.stream().backpressure() if self._exchange.is_streaming else None

    def asked(self, question: ServerQuestion) -> None:
        question.refuse()

    def refused(self, required: Mapping[str, Any]) -> None:
        self.missing = merge_capabilities(self.missing, required)

    def live(self) -> None:
        """Send a keep-alive if nothing else was sent since the last."""
        feed = self._exchange.stream()
        if self._token is not None and not self._spoke:
            self._done = 0.0 if self._done is None else self._done + STEP
            feed.send_now(self._dialect.progress(self._token, self._done, "Still running"))
        self._spoke = False

    def _concerns(self, notification: Notification) -> bool:
        if notification.method == NOTE_PROGRESS:
            return self._token is not None and self._is_further(notification)
        return notification.method == NOTE_MESSAGE and self._dialect.wants_log(notification, self._level)

    def _is_further(self, notification: Notification) -> bool:
        done = progress_done(notification)
        if done is None or (self._done is not None and done <= self._done):
            return False
        self._done = done
        return True
