"""IP addresses and networks of texts. IPv4 that is mapped into IPv6 counts as IPv4. Pure."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_MAPPED_BITS = 96
"""The bits before the IPv4 part of a mapped address."""


def read_address(text: str) -> Address | None:
    """Parse an IP address; None for anything else."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def unmapped(network: Network) -> Network:
    """Return the IPv4 network that is mapped into an IPv6 one, or else the network itself."""
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen < _MAPPED_BITS:
        return network
    return IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))
