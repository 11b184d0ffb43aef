"""The listener of one request of a modern host: `RequestListener`.

`ResponseWaiter` creates one for each request. The server's notifications go to the host on the
request's own event stream, or are dropped if the host accepts none. Questions that come here are
refused, because this era has no questions on a stream. A call that can be held has an
`InflightCall` as its listener, which collects questions and passes only notifications on to here.
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

    Progress is sent with the host's token, if it gave one, and its number grows with every message
    (M-PROG-1). A log message is sent if the request's log level allows it (M-LOG-1). Notifications
    of extensions are forwarded (X-EXT-23); if they name a stream, that is `id`, the request's id.
    Everything else is dropped. `passes_rounds` is whether a modern server's input requests go to
    the host unchanged.

    `_last_progress` is the newest number that the host got, also one that a keep-alive invented.
    `_has_sent` is whether anything was sent since the last keep-alive.
    """

    __slots__ = (
        "_dialect",
        "_exchange",
        "_has_sent",
        "_id",
        "_last_progress",
        "_level",
        "_token",
        "missing",
        "passes_rounds",
        "pulse",
    )

    def __init__(
        self,
        exchange: Exchange,
        dialect: ModernDownstreamDialect,
        meta: RequestMeta,
        id: RequestId | None = None,
        *,
        passes_rounds: bool = False,
    ) -> None:
        self._exchange = exchange
        self._dialect = dialect
        self._id = id
        self._token = meta.progress_token
        self._level = meta.log_level
        self._last_progress: float | None = None
        self._has_sent = False
        self.passes_rounds = passes_rounds
        self.missing: Mapping[str, Any] = {}
        """The capabilities that the host did not declare and the server asked for."""
        self.pulse: Keepalive | None = None
        """The timer that calls `live`, set by `ResponseWaiter` if the host accepts a stream.

        The end of the `with` block stops it.
        """

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
        if self._is_wanted(notification):
            message = self._dialect.notification(notification, self._token)
        elif (
            self._token is not None
            and self._last_progress is not None
            and (words := text_of_progress(notification)) is not None
        ):
            # The server's number does not grow beyond that of a keep-alive. Its text is sent with a
            # number of the gateway's own.
            self._last_progress += STEP
            message = self._dialect.progress(self._token, self._last_progress, words)
        elif notification.method not in _OF_CORE:
            message = self._dialect.notification(notification, None, self._id)
        else:
            return
        self._has_sent = True
        self._exchange.stream().send(message)

    def clog(self) -> Awaitable[None] | None:
        return self._exchange.stream().backpressure() if self._exchange.is_streaming else None

    def asked(self, question: ServerQuestion) -> None:
        question.refuse()

    def refused(self, required: Mapping[str, Any]) -> None:
        self.missing = merge_capabilities(self.missing, required)

    def live(self) -> None:
        """Keep the host waiting: called once in each keep-alive interval.

        Turns the answer into an event stream, and sends progress if nothing was sent since the last
        interval. Without a progress token nothing is sent.
        """
        feed = self._exchange.stream()
        if self._token is not None and not self._has_sent:
            self._last_progress = 0.0 if self._last_progress is None else self._last_progress + STEP
            feed.send_now(self._dialect.progress(self._token, self._last_progress, "Still running"))
        self._has_sent = False

    def _is_wanted(self, notification: Notification) -> bool:
        """Return whether the host gets a progress or log notification as it is."""
        if notification.method == NOTE_PROGRESS:
            return self._token is not None and self._grows(notification)
        return notification.method == NOTE_MESSAGE and self._dialect.wants_log(notification, self._level)

    def _grows(self, notification: Notification) -> bool:
        """Return whether the number of a progress notification grows; if so, remember it."""
        done = progress_done(notification)
        if done is None or (self._last_progress is not None and done <= self._last_progress):
            return False
        self._last_progress = done
        return True
