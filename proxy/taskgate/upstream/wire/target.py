"""Address of a request, and its head: `Target` encodes what all requests share once.

`Origin` has one for the configured URL, and one for each redirect or endpoint within it.
"""

import re
from typing import Final

from yarl import URL

from taskgate.upstream.base import Outgoing

_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_END: Final = "\r\n"
_WITHOUT_LENGTH: Final = frozenset({"GET", "HEAD"})


class Target:
    """One URL within a server's origin. A user name in it is dropped. Its creation raises
    ValueError for an invalid URL."""

    __slots__ = ("_same", "url")

    def __init__(self, url: URL) -> None:
        authority, path = url.host_port_subcomponent, url.raw_path_qs
        if not authority or " " in path or not f"{authority}{path}".isprintable():
            raise ValueError("not an absolute URL")
        self.url = url
        self._same = f" {path} HTTP/1.1\r\nHost: {authority}\r\nAccept-Encoding: identity\r\nUser-Agent: taskgate\r\n"

    def head(self, outgoing: Outgoing) -> bytes:
        """Return the head of a request. Raises ValueError for control characters, which could
        inject another request."""
        verb, body = outgoing.verb, outgoing.body
        lines = list(map(": ".join, outgoing.headers.items()))
        text = "".join((verb, *lines))
        # Printable text contains no forbidden character, and that test is far cheaper.
        if not text.isprintable() and _FORBIDDEN.search(text):
            raise ValueError("a header holds a control character")
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        elif verb not in _WITHOUT_LENGTH:
            lines.append("Content-Length: 0")
        lines.append("\r\n")
        return f"{verb}{self._same}{_END.join(lines)}".encode(errors="ignore")
