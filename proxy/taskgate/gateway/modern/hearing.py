"""What a server says while a request waits for it, told to the host of that request: on its own stream or not at all.

What must not live here: questions, which no host of this era is asked on a stream (`flights`), and for how long a
request is waited on (`attending`).
"""

from collections.abc import Awaitable, Mapping
from typing import Any, Final, Self

from taskgate.domain.record import RequestId
from taskgate.gateway.relay import STEP
from taskgate.protocol.envelope import Notification
from taskgate.protocol.modern_requests import ModernDialect, RequestMeta
from taskgate.protocol.needs import together
from taskgate.protocol.progress import done_of, words_of
from taskgate.protocol.vocabulary import NOTE_MESSAGE, NOTE_PROGRESS, RELAYED_NOTICES
from taskgate.streams.exchange import Exchange
from taskgate.streams.keepalive import Keepalive
from taskgate.upstream.call_listener import ServerQuestion, UnsavedCallListener

_OF_CORE: Final = RELAYED_NOTICES | {NOTE_PROGRESS}


class RequestListener(UnsavedCallListener):
    """Hears one request for its host; see CallListener.

    Progress goes out under the host's own token and grows with every message (M-PROG-1), a log line where the request
    wants to hear it (M-LOG-1). What is heard of an extension crosses (X-EXT-23); where it names its stream, that is
    `id`, the request's own. Everything else is none of the request's.
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
        dialect: ModernDialect,
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
        """What the server was refused for want of; see together."""
        self.pulse: Keepalive | None = None
        """What shows the host that the request is served, until the block ends that this is entered for."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Let go of, too: it holds this.
        pulse, self.pulse = self.pulse, None
        if pulse is not None:
            pulse.stop()

    def on_notification(self, notification: Notification) -> None:
        """See CallListener."""
        if not self._exchange.head.accepts_stream:
            return
        if self._concerns(notification):
            message = self._dialect.on_notification(notification, self._token)
        elif self._token is not None and self._done is not None and (words := words_of(notification)) is not None:
            # The number that goes with them is ours: only what we made up meanwhile is further.
            self._done += STEP
            message = self._dialect.progress(self._token, self._done, words)
        elif notification.method not in _OF_CORE:
            message = self._dialect.on_notification(notification, None, self._id)
        else:
            return
        self._spoke = True
        self._exchange.stream().send(message)

    def clog(self) -> Awaitable[None] | None:
        """See CallListener."""
        return self._exchange.stream().backpressure() if self._exchange.is_streaming else None

    def asked(self, question: ServerQuestion) -> None:
        """See CallListener: nobody can be asked on a stream of this era."""
        question.refuse()

    def refused(self, required: Mapping[str, Any]) -> None:
        """See CallListener."""
        self.missing = together(self.missing, required)

    def live(self) -> None:
        """Show the host that the request is still served, where nothing else did."""
        feed = self._exchange.stream()
        if self._token is not None and not self._spoke:
            self._done = 0.0 if self._done is None else self._done + STEP
            feed.send_now(self._dialect.progress(self._token, self._done, "Still running"))
        self._spoke = False

    def _concerns(self, notification: Notification) -> bool:
        if notification.method == NOTE_PROGRESS:
            return self._token is not None and self._is_further(notification)
        return notification.method == NOTE_MESSAGE and self._dialect.is_loud_enough(notification, self._level)

    def _is_further(self, notification: Notification) -> bool:
        done = done_of(notification)
        if done is None or (self._done is not None and done <= self._done):
            return False
        self._done = done
        return True
