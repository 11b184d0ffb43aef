"""The names that a listener answers to, and the web origins that may call it: `allowed_hosts` and
`allowed_origins`.

The configuration uses them to make `ListenerSettings`, and `Door` looks headers up in the sets.
Each set is complete and in lower case. Pure.
"""

from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

_USUAL_PORTS: Final = ("80", "443")
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")


def allowed_hosts(
    public_url: str | None, listen_host: str, bound_port: int, configured: Iterable[str]
) -> frozenset[str]:
    """Return every value of `Host` that the listener answers to.

    A configured list is exact. An entry with a port means that port. An entry without one means the
    listener's port and the usual ports of http and https, written or left out.

    Without a list it is the host of `public_url`, or the listen address if that is unset. A
    loopback listener also answers to localhost, 127.0.0.1 and [::1] with its port.
    """
    entries = list(configured)
    if not entries:
        here = f"[{listen_host}]" if ":" in listen_host else listen_host
        entries.append(urlsplit(public_url).netloc if public_url else f"{here}:{bound_port}")
        if _is_loopback(listen_host):
            entries.extend(f"{name}:{bound_port}" for name in _LOOPBACK_NAMES)
    return frozenset(spelling for entry in entries for spelling in _spellings(entry.lower(), bound_port))


def allowed_origins(hosts: Iterable[str], configured: Iterable[str]) -> frozenset[str]:
    """Return every accepted value of `Origin`: the configured ones, else `hosts` over http and
    https.

    `null`, which sandboxed pages and local files send, is excluded.
    """
    entries = list(configured) or [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
    return frozenset(entry.lower() for entry in entries) - {"null"}


def _spellings(entry: str, bound_port: int) -> Iterator[str]:
    """Return what hosts may send for one entry: clients leave the usual port out."""
    yield entry
    name, colon, port = entry.rpartition(":")
    if not colon or port.endswith("]"):
        for each in (str(bound_port), *_USUAL_PORTS):
            yield f"{entry}:{each}"
    elif port in _USUAL_PORTS:
        yield name


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
