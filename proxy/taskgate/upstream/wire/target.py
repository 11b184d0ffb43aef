"""Where requests go, and the head of each: what is the same for all of them is written once.

What must not live here: connections, and which target is taken.
"""

import re
from typing import Final

from yarl import URL

from taskgate.upstream.base import Outgoing

_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_END: Final = "\r\n"
_WITHOUT_LENGTH: Final = frozenset({"GET", "HEAD"})


class Target:
    """One address within a server's origin. ValueError for a URL that cannot be one; its user is left out."""

    __slots__ = ("_same", "url")

    def __init__(self, url: URL) -> None:
        authority, path = url.host_port_subcomponent, url.raw_path_qs
        if not authority or " " in path or not f"{authority}{path}".isprintable():
            raise ValueError("not an absolute URL")
        self.url = url
        self._same = f" {path} HTTP/1.1\r\nHost: {authority}\r\nAccept-Encoding: identity\r\nUser-Agent: taskgate\r\n"

    def head(self, outgoing: Outgoing) -> bytes:
        """The head of a request. ValueError for control characters, which could make another request of it."""
        verb, body = outgoing.verb, outgoing.body
        lines = [f"{name}: {value}" for name, value in outgoing.headers.items()]
        text = "".join((verb, *lines))
        # Nothing that is printable is forbidden, and to ask that is far cheaper.
        if not text.isprintable() and _FORBIDDEN.search(text):
            raise ValueError("a header holds a control character")
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        elif verb not in _WITHOUT_LENGTH:
            lines.append("Content-Length: 0")
        lines.append("\r\n")
        return f"{verb}{self._same}{_END.join(lines)}".encode(errors="ignore")
