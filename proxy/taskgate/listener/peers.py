"""Where a request comes from, as far as that can be believed. Pure.

What lives here: reading `Forwarded` (RFC 7239) or `X-Forwarded-For`, whichever the operator's proxies set, and how far
to follow it. What must not: any decision that is made of an address; rates may count by it, and operators read it. What
holds: only what trusted proxies said is believed, nothing that was sent raises, and an answer is an address in its
canonical form or `UNKNOWN`, so that no text of a peer comes through.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from itertools import islice
from typing import Final, Literal

from taskgate.streams.exchange import UNKNOWN

Network = IPv4Network | IPv6Network
_Address = IPv4Address | IPv6Address
ForwardedHeader = Literal["x-forwarded-for", "forwarded"]

_MOST_HOPS: Final = 16
_LONGEST: Final = 2048
"""Characters that are read of a header, from its end, where the nearest proxy writes."""

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PAIR: Final = rf'{_WORD}=(?:{_WORD}|"(?:[^"\\]|\\.)*+")'
# Read from the end: whatever a host wrote stands before what proxies have appended, and cannot spoil that.
_LAST_ELEMENT: Final = re.compile(rf"(?:^|,)[ \t]*(?P<pairs>{_PAIR}(?:[ \t]*;[ \t]*{_PAIR})*+)[ \t]*$")
_FOR: Final = re.compile(rf'(?:^|;)[ \t]*for=(?:(?P<token>{_WORD})|"(?P<quoted>[^"\\]*)")', re.IGNORECASE)
_PORT: Final = r"(?::(?:[0-9]{1,5}|_[A-Za-z0-9._-]{1,64}))?"
_NODE: Final = re.compile(
    rf"(?P<four>[0-9.]{{7,15}}){_PORT}|\[(?P<bracketed>[0-9A-Fa-f:.]{{2,45}})\]{_PORT}|(?P<six>[0-9A-Fa-f:.]{{2,45}})"
)


class Peers:
    """Tells where requests come from; `trusted` are the networks of the proxies that may say so for others.

    They say so in one header: a proxy that sets one passes the other on, as a host has written it.
    """

    def __init__(self, trusted: Sequence[Network] = (), header: ForwardedHeader = "x-forwarded-for") -> None:
        self._trusted = tuple(trusted)
        self._hops = _forwarded if header == "forwarded" else _forwarded_for
        self.header: Final = header
        self.trusts_any = bool(trusted)
        """Whether headers may say where a request comes from; else nobody need look at them."""

    def address_of(self, peer: str | None, fields: Sequence[str] = ()) -> str:
        """The nearest address that is not of a trusted proxy, from the other end of the connection outwards.

        `fields`, what `header` says, are looked at for trusted peers only. Where they say nothing that can be read, or
        hide a host, it is the last address before that.
        """
        nearest, text = _read_peer(peer or "")
        # Most gateways trust nobody: what is remembered is the answer then.
        if nearest is None or not self._trusted:
            return text
        if self._trusts(nearest):
            for hop in islice(self._hops(_end_of(fields)), _MOST_HOPS):
                if hop is None:
                    break
                nearest = hop
                if not self._trusts(hop):
                    break
        return str(nearest)

    def trusts(self, peer: str | None) -> bool:
        """Whether the other end of a connection may say where requests come from."""
        address, _ = _read_peer(peer or "")
        return address is not None and self._trusts(address)

    def _trusts(self, address: _Address) -> bool:
        return any(address in network for network in self._trusted)


def read_address(text: str) -> _Address | None:
    """An address, IPv4 where IPv6 only wraps it; None for anything else."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


@lru_cache(maxsize=4096)
def _read_peer(peer: str) -> tuple[_Address | None, str]:
    """The address of the other end, and its text: they are fewer than requests."""
    address = read_address(peer.partition("%")[0])
    return address, UNKNOWN if address is None else str(address)


def _end_of(fields: Sequence[str]) -> str:
    text = ",".join(fields)
    return text if len(text) <= _LONGEST else text[-_LONGEST:].partition(",")[2]


def _forwarded(text: str) -> Iterator[_Address | None]:
    """The nodes of `Forwarded`, from the nearest; the first None is the last."""
    end = len(text)
    while (element := _LAST_ELEMENT.search(text, 0, end)) is not None:
        said = _FOR.search(element["pairs"])
        yield None if said is None else _node(said["token"] or said["quoted"] or "")
        end = element.start()
    yield None


def _forwarded_for(text: str) -> Iterator[_Address | None]:
    """The nodes of `X-Forwarded-For`, from the nearest."""
    return (_node(each.strip(" \t")) for each in reversed(text.split(",")))


def _node(text: str) -> _Address | None:
    """The address of a node with or without a port; None for one that is hidden, and for what is none."""
    match = _NODE.fullmatch(text)
    return None if match is None else read_address(match["four"] or match["bracketed"] or match["six"])
