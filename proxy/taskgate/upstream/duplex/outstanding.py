"""Outstanding work of the server on one channel: `RequestsInFlight`, `AbandonedRequests`, `RunningTasks`.

`Dispatcher` uses them for every message. A request is added before it is sent. It leave by
`answered`, by `forget` if the server does not work on it, by `abandon` if it may, or when the
channel is lost. A request fails only if the bad answer was certainly its own, or with a text that
says that the request is unknown. `SharedHandshake` is the one `initialize` of the channel.
"""

import asyncio
from typing import Final, NamedTuple

from taskgate.domain.record import RequestId
from taskgate.errors import UpstreamFailed
from taskgate.protocol.faults import no_message
from taskgate.protocol.jsonrpc import with_id
from taskgate.protocol.messages import Response, value_of
from taskgate.upstream.duplex.peek import Read, response_in, task_shown_in
from taskgate.upstream.duplex.pending import PendingRequest, RequestOwner

STILL: Final = 300.0
"""Seconds for which an abandoned request counts as running, beside other requests of the same
caller. For other callers it always counts."""

_MOST: Final = 1024
"""Requests that are stored one by one; of older ones only the auth context."""
_SEVERAL: Final = 2
"""With so many older contexts it is known that there are several; more need not be stored."""


class _Abandoned(NamedTuple):
    """A request: its session (empty in the modern era), its auth context, and the loop time until
    which it counts as running."""

    session: str
    context: str
    until: float


class AbandonedRequests:
    """The abandoned requests of one channel."""

    __slots__ = ("_older", "_requests")

    def __init__(self) -> None:
        self._requests: dict[RequestId, _Abandoned] = {}
        self._older: set[str] = set()

    def note(self, id: RequestId, session: str, context: str, until: float) -> None:
        """Add a request; it counts as running until the loop time `until`."""
        self._requests[id] = _Abandoned(session, context, until)
        if len(self._requests) > _MOST:
            oldest = self._requests.pop(next(iter(self._requests)))
            if len(self._older) < _SEVERAL:
                self._older.add(oldest.context)

    def answered(self, id: RequestId) -> None:
        """Remove a request that the server answered."""
        self._requests.pop(id, None)

    def __contains__(self, id: RequestId) -> bool:
        """Whether the server may still answer the request."""
        return id in self._requests

    @property
    def contexts(self) -> set[str]:
        """The auth contexts of the requests; not all if there are many."""
        return {request.context for request in self._requests.values()} | self._older

    def sessions(self, now: float) -> list[str]:
        """Return the session of each running request; empty for one without a session."""
        return [request.session for request in self._requests.values() if request.until > now]


LEAST: Final = 30.0
"""Seconds without a poll after which a task no longer counts as running; three poll intervals if
those are longer."""

_INTERVALS: Final = 3
_LARGEST: Final = 16 * 1024
"""Bytes of an answer that is examined: an answer that only shows a task is short."""
_NAMED: Final = b'"taskId"'
_AT_WORK: Final = frozenset({"working", "input_required"})


class _Seen(NamedTuple):
    """Last poller of a task, and the loop time until which the task counts."""

    who: RequestOwner
    until: float


class RunningTasks:
    """The tasks of one channel."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def look(self, answer: bytes, who: RequestOwner, now: float) -> None:
        """Note the task that an answer shows, if any; `who` polled it."""
        if len(answer) > _LARGEST or _NAMED not in answer:
            return
        shown = task_shown_in(answer)
        if shown is None:
            return
        self._seen.pop(shown.id, None)
        if shown.status in _AT_WORK:
            self._seen[shown.id] = _Seen(who, now + max(LEAST, _INTERVALS * shown.interval))

    def count(self, now: float) -> int:
        """Return how many tasks run; others are removed."""
        if not self._seen:
            return 0
        for id_ in [id_ for id_, seen in self._seen.items() if seen.until <= now]:
            del self._seen[id_]
        return len(self._seen)

    def followers(self, now: float) -> list[RequestOwner]:
        """Return who polled each running task last."""
        return [seen.who for seen in self._seen.values() if seen.until > now]

    def of(self, id: str) -> RequestOwner | None:
        """Return who polled the task last; None if unknown."""
        seen = self._seen.get(id)
        return None if seen is None else seen.who


NEARLY: Final = 0.95
"""The share of the timeout after which a cancelled wait counts as a timeout."""


class SharedHandshake:
    """State of the handshake. `waiting` has the requests that wait for its answer, also that of the
    sender."""

    __slots__ = ("_sent_as", "_sent_at", "_was_confirmed", "_welcome", "waiting")

    def __init__(self) -> None:
        # The id and loop time of `initialize`; None if "not sent". Then the server's acceptance.
        self._sent_as: RequestId | None = None
        self._sent_at = 0.0
        self._welcome: Response | None = None
        self._was_confirmed = False
        self.waiting: list[PendingRequest] = []

    @property
    def is_welcome(self) -> bool:
        """Whether the server accepted it."""
        return self._welcome is not None

    def join(self, request: PendingRequest, now: float) -> bool:
        """Give the request the server's acceptance, or add it to `waiting`. False if its caller
        must send `initialize`, under the request's id."""
        if self._welcome is not None:
            _welcome_with(self._welcome, request)
            return True
        self.waiting.append(request)
        if self._sent_as is not None:
            return True
        self._sent_as, self._sent_at = request.id, now
        return False

    def fail(self, failure: UpstreamFailed) -> None:
        """Fail the waiting requests and return to "not sent": it could not be sent, or no answer
        can arrive."""
        self._sent_as = None
        waiting, self.waiting = self.waiting, []
        for request in waiting:
            request.fail(failure)

    def leave(self, request: PendingRequest) -> None:
        """Remove a request that no longer waits; nothing if it has its answer."""
        if request in self.waiting:
            self.waiting.remove(request)

    def awaits(self, id: RequestId) -> bool:
        """Whether `initialize` was sent under that id and has no answer yet."""
        return id == self._sent_as and self._welcome is None

    def receive(self, message: Read) -> bool:
        """Take the message that answers `initialize`, and end the wait of all requests: accepted,
        refused, or failed if it is invalid.

        False if it is a result but no acceptance: the state of such a server is unknown, and the
        channel is of no use.
        """
        response = response_in(message)
        if response is None:
            self.fail(no_message())
            return True
        if _is_welcome(response):
            self._welcome = response
        else:
            self._sent_as = None
        waiting, self.waiting = self.waiting, []
        for request in waiting:
            _welcome_with(response, request)
        return self.is_welcome or response.result is None

    def is_hopeless(self, patience: float, now: float, *, left: float) -> bool:
        """Whether the channel should be dropped, asked when a waiter leaves: the server did not
        answer.

        It was silent for a whole timeout, `patience`. Or the time of the leaving waiter is over
        (`left` seconds remain of it), and there is no other waiter.
        """
        if self._sent_as is None or self._welcome is not None:
            return False
        is_spent = left <= patience * (1 - NEARLY)
        return now - self._sent_at >= patience * NEARLY or (is_spent and not self.waiting)

    def takes_confirmation(self) -> bool:
        """Whether `notifications/initialized` is still to be sent. True only once: each session
        sends it, and the server gets one."""
        was_confirmed, self._was_confirmed = self._was_confirmed, True
        return not was_confirmed


def _is_welcome(response: Response) -> bool:
    said = (response.result.members or {}) if response.result is not None else {}
    return isinstance(value_of(said, "protocolVersion"), str)


def _welcome_with(response: Response, request: PendingRequest) -> None:
    """Give a request the answer, under its own id."""
    request.answer((response.text if response.id == request.id else with_id(response, request.id)).encode())


_NO_WORK: Final = 0.0


class RequestsInFlight:
    """Requests in flight (`requests`), the handshake (`handshake`), and abandoned requests
    (`abandoned`)."""

    __slots__ = ("abandoned", "handshake", "listening", "requests")

    def __init__(self) -> None:
        self.handshake = SharedHandshake()
        self.requests: dict[RequestId, PendingRequest] = {}
        """The requests in flight, by id in the order of sending; also of streams
        that only listen."""
        self.listening: set[RequestId] = set()
        """Those of the request ids whose streams only listen. Such a request is not work of the
        server."""
        self.abandoned = AbandonedRequests()

    def __len__(self) -> int:
        """How many requests wait for an answer."""
        return len(self.requests) - len(self.listening) + len(self.handshake.waiting)

    def answered(self, id: RequestId) -> PendingRequest | None:
        """Remove a request because its answer arrived. Returns it; None if it was not in
        flight."""
        self.abandoned.answered(id)
        self.listening.discard(id)
        return self.requests.pop(id, None)

    def forget(self, request: PendingRequest) -> None:
        """Remove a request that the server does not work on: it was not sent, or has ended without
        an answer."""
        if self.requests.get(request.id) is request:
            del self.requests[request.id]
            self.listening.discard(request.id)

    def abandon(self, request: PendingRequest) -> None:
        """Remove a request whose caller waits no longer. If it was sent, it is noted as
        abandoned."""
        if request.was_sent:
            until = _NO_WORK if request.id in self.listening else asyncio.get_running_loop().time() + STILL
            self.abandoned.note(request.id, request.owner.id, request.owner.context, until)
        self.forget(request)

    def fail(self, id: RequestId, failure: UpstreamFailed) -> None:
        """Fail the request with that id."""
        request = self.answered(id)
        if request is not None:
            request.fail(failure)
        elif self.handshake.awaits(id):
            self.handshake.fail(failure)

    def fail_the_only_one(self, failure: UpstreamFailed) -> bool:
        """Fail the only request in flight: the server sent a bad answer that names no id.

        False if there are several, so that the request is unknown; then nothing fails.
        """
        at_work = self.abandoned.sessions(asyncio.get_running_loop().time())
        if len(self) and len(self) + len(at_work) > 1:
            return False
        for request in self._at_work():
            self.forget(request)
            request.fail(failure)
        if self.handshake.waiting:
            self.handshake.fail(failure)
        return True

    def fail_all(self, failure: UpstreamFailed) -> None:
        """Fail all requests: the answer of one of them will not arrive, and which is unknown."""
        for request in self._at_work():
            # It stays in `requests` until its reader ends it: the server may still work on it.
            request.fail(failure)
        if self.handshake.waiting:
            self.handshake.fail(failure)

    def lost(self, failure: UpstreamFailed) -> None:
        """Fail all requests: the channel is closed."""
        requests = list(self.requests.values())
        self.listening.clear()
        self.requests.clear()
        for request in requests:
            request.fail(failure)
        self.handshake.fail(failure)

    def _at_work(self) -> list[PendingRequest]:
        """Return the requests that wait for an answer."""
        return [request for id_, request in self.requests.items() if id_ not in self.listening]
