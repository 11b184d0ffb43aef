"""The source address of a request: `Peers` finds it.

A *peer* is the other end of the connection: a host, or a proxy before it. Each proxy adds the
address that it got the request from to `Forwarded` (RFC 7239) or `X-Forwarded-For`, whichever the
operator configured. Such an address is a *hop*. Only what trusted proxies added is believed.

`Endpoint` asks for the address; rates may count by it, and logs show it. The result is an IP
address in canonical form or `UNKNOWN`, so no text of a peer passes through. No input raises. Pure.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, Literal

from aiohttp import hdrs

from taskgate.ip_addresses import Address, Network, read_address
from taskgate.streams.exchange import UNKNOWN

ForwardedHeader = Literal["x-forwarded-for", "forwarded"]

_MOST_HOPS: Final = 16
"""The addresses that are read from a header; the search ends at the last."""
_LONGEST: Final = 2048
"""Characters of a header that are read, from its end, where the nearest proxy writes."""

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PAIR: Final = rf'{_WORD}=(?:{_WORD}|"(?:[^"\\]|\\.)*+")'
# The last element of a list. What a host wrote stands before what proxies appended, and cannot
# affect how that is read.
_LAST_ELEMENT: Final = re.compile(rf"(?:^|,)[ \t]*(?P<pairs>{_PAIR}(?:[ \t]*;[ \t]*{_PAIR})*+)[ \t]*$")
_FOR: Final = re.compile(rf'(?:^|;)[ \t]*for=(?:(?P<token>{_WORD})|"(?P<quoted>[^"\\]*)")', re.IGNORECASE)
_PORT: Final = r"(?::(?:[0-9]{1,5}|_[A-Za-z0-9._-]{1,64}))?"
_NODE: Final = re.compile(
    rf"(?P<four>[0-9.]{{7,15}}){_PORT}|\[(?P<bracketed>[0-9A-Fa-f:.]{{2,45}})\]{_PORT}|(?P<six>[0-9A-Fa-f:.]{{2,45}})"
)


class Peers:
    """The rules by which a request's source address is found; a value without state.

    `trusted` are the networks of the operator's proxies. `header` is the one that they add to. The
    other one is not read: a proxy passes it on as the host wrote it.
    """

    def __init__(self, trusted: Sequence[Network] = (), header: ForwardedHeader = "x-forwarded-for") -> None:
        self._trusted = tuple(trusted)
        self._hops = _forwarded if header == "forwarded" else _forwarded_for
        self.header: Final = header
        self.field: Final = hdrs.FORWARDED if header == "forwarded" else hdrs.X_FORWARDED_FOR
        self.trusts_any = bool(trusted)
        """Whether a proxy is trusted; otherwise the headers need not be read."""

    def address_of(self, peer: str | None, fields: Sequence[str] = ()) -> str:
        """Return the address that a request came from; UNKNOWN if `peer` is no IP address.

        `peer` is the peer's address, `fields` are the values of `header`. The search begins at the
        peer and follows the hops away from it. It returns the first address that is not a trusted
        proxy's. It ends early at an unreadable or hidden hop, at the end of the header, and after
        16 hops. Then it returns the last address that was read, which is a trusted proxy's.
        """
        nearest, text = read_peer(peer or "")
        # Most gateways trust no proxy: the cached text is the answer.
        if nearest is None or not self._trusted:
            return text
        if self._trusts(nearest):
            for hop in islice(self._hops(_last_part(fields)), _MOST_HOPS):
                if hop is None:
                    break
                nearest = hop
                if not self._trusts(hop):
                    break
        return str(nearest)

    def trusts(self, peer: str | None) -> bool:
        """Whether the peer of a connection is a trusted proxy; False if it is no IP address."""
        address, _ = read_peer(peer or "")
        return address is not None and self._trusts(address)

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


@lru_cache(maxsize=4096)
def read_peer(peer: str) -> tuple[Address | None, str]:
    """Return the address of a peer, and its canonical text; None and UNKNOWN if it is no address.

    An IPv6 zone (`%eth0`) is left out. Cached: there are fewer peers than requests.
    """
    address = read_address(peer.partition("%")[0])
    return address, UNKNOWN if address is None else str(address)


def _last_part(fields: Sequence[str]) -> str:
    """Return the joined fields, or the whole elements in their last `_LONGEST` characters."""
    text = ",".join(fields)
    return text if len(text) <= _LONGEST else text[-_LONGEST:].partition(",")[2]


def _forwarded(text: str) -> Iterator[Address | None]:
    """Return the addresses in `Forwarded`, nearest first; None for one that cannot be read."""
    end = len(text)
    while (element := _LAST_ELEMENT.search(text, 0, end)) is not None:
        said = _FOR.search(element["pairs"])
        # Read backwards: the next search ends where this element begins.
        yield None if said is None else _node(said["token"] or said["quoted"] or "")
        end = element.start()
    # What precedes is no element, or there is none: the search ends here in any case.
    yield None


def _forwarded_for(text: str) -> Iterator[Address | None]:
    """Return the addresses in `X-Forwarded-For`, nearest first; None for one that cannot be read."""
    return (_node(each.strip(" \t")) for each in reversed(text.split(",")))


def _node(text: str) -> Address | None:
    """Return the address of a node, with or without a port; None if it is hidden or invalid."""
    match = _NODE.fullmatch(text)
    return None if match is None else read_address(match["four"] or match["bracketed"] or match["six"])
