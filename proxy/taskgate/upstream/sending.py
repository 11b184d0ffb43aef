"""Requests of one session on their way to the transport: `SessionTransport`, with its written steps.

A request gets the principal of the session and the credentials for the server. A `RequestWatch`
sees it: the circuit breaker (`guarded`), or the probe of health checks (`health`). `http` creates
the transport; the sessions of both eras send through it.
"""

import asyncio
from typing import Final, Protocol

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream.base import Incoming, Outgoing, Transport
from taskgate.upstream.credentials.speaking import Credentials
from taskgate.upstream.principal import PrincipalSource


class RequestWatch(Protocol):
    """Sees each request to a server, and its outcome.

    It does not see requests that only listen. Streams reopen after pauses of their own, and one may
    bring the answer of a running call. Requests that follow something begun pass unseen too: to
    refuse the server an answer would fail the call that asked for it.
    """

    def begin(self) -> int:
        """Return the number of a request that is about to be sent. Raises UpstreamFailed if it must
        not be."""
        ...

    def settle(self, number: int, ok: bool | None) -> None:
        """Take the outcome of a request, once, on every path.

        `ok` is True for an answer, False for a failure of the server, None if neither is known.
        """
        ...


class SessionTransport:
    """The `Transport` of one session, around the transport to the server that all sessions share.

    A request without a principal is made for that of the session, which `principal_source` returns.
    `asks_whose`: the server's transport must know the principal of every request. Failures to get a
    token are raised by `send` as UpstreamFailed. `checks`: the requests are health checks.
    """

    __slots__ = ("_asks_whose", "_checks", "_credentials", "_principal_source", "_transport", "_watch")

    def __init__(
        self,
        transport: Transport,
        watch: RequestWatch | None,
        principal_source: PrincipalSource,
        *,
        asks_whose: bool = False,
        credentials: Credentials | None = None,
        checks: bool = False,
    ) -> None:
        self._transport = transport
        self._watch = watch
        self._principal_source = principal_source
        self._asks_whose = asks_whose
        self._credentials = credentials
        self._checks = checks

    async def send(self, outgoing: Outgoing, *, is_again: bool = False) -> Incoming:
        asked, watch, credentials, token = outgoing, self._watch, self._credentials, None
        principal = outgoing.principal
        if principal is None and (self._asks_whose or credentials is not None):
            principal = self._principal_source()
        if self._asks_whose:
            outgoing = outgoing._replace(principal=principal)
        if self._checks:
            outgoing = outgoing._replace(checks=True)
        if credentials is not None and principal is not None:
            token = await credentials.token(principal)
            outgoing = outgoing._replace(headers={**outgoing.headers, **credentials.fields(principal, token)})
        if watch is None or outgoing.only_listens or outgoing.follows:
            incoming = await self._transport.send(outgoing)
        else:
            loop, ok = asyncio.get_running_loop(), None
            number, began = watch.begin(), loop.time()
            try:
                incoming = await self._transport.send(outgoing)
                ok = incoming.status not in _DOWN
            except UpstreamFailed as failure:
                ok = _is_answer(failure)
                raise
            except asyncio.CancelledError:
                # The caller may cancel just before the transport would have timed out. That is
                # silence of the server; an earlier cancellation shows nothing.
                patience = outgoing.first_byte
                if patience is not None and loop.time() - began >= patience.total_seconds() * _NEARLY:
                    ok = False
                raise
            finally:
                watch.settle(number, ok)
        if token is not None and incoming.status == _UNAUTHORIZED and credentials is not None and principal is not None:
            # The server refused the token. The answer is returned: a call is not sent twice.
            credentials.refused(principal, token)
            if outgoing.only_listens and not is_again:
                # A stream has no effect at the server, so it is opened again, with a new token.
                incoming.release()
                return await self.send(asked, is_again=True)
        return incoming

    async def close(self) -> None:
        """Do nothing: the connections are shared by all sessions with the server."""


def _is_answer(failure: UpstreamFailed) -> bool | None:
    """Return True if it comes from an answer, False for a failure of the server, else None."""
    if failure.reason == UpstreamReason.CLOSED.value and not failure.dispatched:
        # The gateway closed it itself.
        return None
    if failure.reason == UpstreamReason.INTERNAL.value:
        return None
    return failure.reason not in _FAILURES


_UNAUTHORIZED: Final = 401
_DOWN: Final = frozenset({502, 503, 504})
_FAILURES: Final = frozenset(
    {UpstreamReason.UNREACHABLE.value, UpstreamReason.CLOSED.value, UpstreamReason.TIMEOUT.value}
)
_NEARLY: Final = 0.95
"""The share of the timeout after which a cancelled wait counts as silence of the server."""
