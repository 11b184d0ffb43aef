"""The factory of request contexts: `RequestContexts`.

`Endpoint` opens a `RequestContext` for each request of a host. It has an id, the source address
(`peers`), the method and the path, and collects what logs, metrics and spans report later. Ids are
unique among all processes. Opening a context never waits.
"""

from base64 import b32encode
from itertools import count
from logging import getLogger
from typing import Final

from aiohttp import hdrs, web

from taskgate.clock import Entropy
from taskgate.listener.door import path_of
from taskgate.listener.peers import Peers
from taskgate.telemetry.request_context import RequestContext

NO_VERB: Final = "_OTHER"
"""The method label of what is no request."""
_PREFIX_BYTES: Final = 5
"""Random bytes of a process; eight characters in an id."""


_log = getLogger("taskgate.listener")


class RequestContexts:
    """The factory of request contexts. An id is a random prefix of the process, and a number."""

    def __init__(self, peers: Peers, entropy: Entropy) -> None:
        self._peers = peers
        self._has_warned = False
        self._prefix = b32encode(entropy.token(_PREFIX_BYTES)).decode().lower()
        self._next = count(1).__next__

    def open(self, http: web.BaseRequest) -> RequestContext:
        """Open the context of a request, from its head."""
        headers, peers = http.headers, self._peers
        address = self._forwarded_address(http) if peers.trusts_any else peers.address_of(http.remote)
        if not self._has_warned and (hdrs.X_FORWARDED_FOR in headers or hdrs.FORWARDED in headers):
            self._warn_of_proxy(http)
        path, agent = path_of(http.raw_path), headers.get(hdrs.USER_AGENT)
        return RequestContext(f"{self._prefix}-{self._next()}", address, http.method, path, agent)

    def _warn_of_proxy(self, http: web.BaseRequest) -> None:
        """Log once that hosts seem to come through a proxy that is not configured.

        They then count as one address. A forwarding header from a peer that is no trusted proxy, or
        one of the wrong kind, shows it.
        """
        peers = self._peers
        if not peers.trusts(http.remote):
            text = (
                "a peer that is not in server.trusted_proxies sends forwarding headers: if it is a proxy, add it there"
            )
        elif peers.header not in http.headers:
            text = "a trusted proxy sends a forwarding header other than the one in server.forwarded_header"
        else:
            return
        self._has_warned = True
        extra = {"peer": peers.address_of(http.remote), "forwarded_header": peers.header}
        _log.warning("%s; until then all hosts behind it share one address and its limits", text, extra=extra)

    def open_for_garbage(self, http: web.BaseRequest) -> RequestContext:
        """Open the context of bytes that were no request, but get an answer. Nothing of them is
        stored.
        """
        return RequestContext(f"{self._prefix}-{self._next()}", self._peers.address_of(http.remote), NO_VERB, "")

    def _forwarded_address(self, http: web.BaseRequest) -> str:
        peers = self._peers
        return peers.address_of(http.remote, http.headers.getall(peers.header, ()))
