"""The account that every request of a host begins with: who can be told of it, and by which id.

What must not live here: what becomes of a request. What holds: no two requests have the same id, of whatever process;
and nothing is waited for to open an account.
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
"""The method of what is no request."""
_CHANCE: Final = 5
"""Bytes: eight letters."""


_log = getLogger("taskgate.listener")


class RequestContexts:
    """Opens them. An id is some letters of this process, and a number."""

    def __init__(self, peers: Peers, entropy: Entropy) -> None:
        self._peers = peers
        self._is_told = False
        self._prefix = b32encode(entropy.token(_CHANCE)).decode().lower()
        self._next = count(1).__next__

    def open(self, http: web.BaseRequest) -> RequestContext:
        """The account of a request, of which no more is known than its head."""
        headers, peers = http.headers, self._peers
        address = self._found_out(http) if peers.trusts_any else peers.address_of(http.remote)
        if not self._is_told and (hdrs.X_FORWARDED_FOR in headers or hdrs.FORWARDED in headers):
            self._doubt(http)
        path, agent = path_of(http.raw_path), headers.get(hdrs.USER_AGENT)
        return RequestContext(f"{self._prefix}-{self._next()}", address, http.method, path, agent)

    def _doubt(self, http: web.BaseRequest) -> None:
        """Tell once where hosts seem to come through a proxy, and all of them are counted as that one address."""
        peers = self._peers
        if not peers.trusts(http.remote):
            text = (
                "a peer that is not in server.trusted_proxies sends forwarding headers: if it is a proxy, add it there"
            )
        elif peers.header not in http.headers:
            text = "a trusted proxy sends a forwarding header other than the one in server.forwarded_header"
        else:
            return
        self._is_told = True
        extra = {"peer": peers.address_of(http.remote), "forwarded_header": peers.header}
        _log.warning("%s; until then all hosts behind it share one address and its limits", text, extra=extra)

    def open_for_garbage(self, http: web.BaseRequest) -> RequestContext:
        """The account of what was answered without ever being a request; nothing of it is kept."""
        return RequestContext(f"{self._prefix}-{self._next()}", self._peers.address_of(http.remote), NO_VERB, "")

    def _found_out(self, http: web.BaseRequest) -> str:
        peers = self._peers
        return peers.address_of(http.remote, http.headers.getall(peers.header, ()))
