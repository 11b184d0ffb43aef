"""Which names a listener answers to, and which web origins may call it. Pure.

What holds: every set is in lower case and complete, so that a request is checked by looking its header up.
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
    """Every value of `Host` that the listener answers to.

    A configured list is exact: an entry with a port means that port; one without means the listener's own port and the
    usual ports of http and https, written or left out. Without a list it is the host of `public_url` (unset: the
    address listened on), and on a loopback listener also localhost, 127.0.0.1 and [::1] with its port.
    """
    entries = list(configured)
    if not entries:
        here = f"[{listen_host}]" if ":" in listen_host else listen_host
        entries.append(urlsplit(public_url).netloc if public_url else f"{here}:{bound_port}")
        if _is_loopback(listen_host):
            entries.extend(f"{name}:{bound_port}" for name in _LOOPBACK_NAMES)
    return frozenset(spelling for entry in entries for spelling in _spellings(entry.lower(), bound_port))


def allowed_origins(hosts: Iterable[str], configured: Iterable[str]) -> frozenset[str]:
    """Every value of `Origin` that is let in: the configured ones, else `hosts` over http and https.

    `null`, which sandboxed pages and local files send, is never one of them.
    """
    entries = list(configured) or [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
    return frozenset(entry.lower() for entry in entries) - {"null"}


def _spellings(entry: str, bound_port: int) -> Iterator[str]:
    """What hosts may send for one entry: clients leave the usual port out."""
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
