"""Networks, as a file writes them.

What must not live here: who is in one, and what that means. What holds: as in addresses, what is read is canonical, and
no message quotes what it refuses.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

_ADDRESS = r"[0-9A-Fa-f:.]+(/[0-9]{1,3})?"
_MAPPED = IPv6Network("::ffff:0:0/96")


def read_network(written: object) -> IPv4Network | IPv6Network:
    """The network that `ADDRESS/BITS` means, or one address; IPv4 where IPv6 only wraps it. A network passes."""
    if isinstance(written, IPv4Network | IPv6Network):
        return written
    if not isinstance(written, str) or not re.fullmatch(_ADDRESS, written):
        raise ValueError(_WORDS)
    try:
        network = ip_network(written, strict=False)
    except ValueError:
        raise ValueError(_WORDS) from None
    if network.network_address != ip_network(written.partition("/")[0]).network_address:
        raise ValueError("must not have bits set behind its prefix: 10.0.0.0/8 is a network, 10.0.0.1 one address")
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        return IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - 96))
    return network


_WORDS = "must be a network such as 10.0.0.0/8 or fd00::/8, or one address"

Network = Annotated[
    IPv4Network | IPv6Network,
    PlainValidator(read_network),
    PlainSerializer(str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": f"^{_ADDRESS}$"}),
]
