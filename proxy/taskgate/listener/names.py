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
    """Return every value of `Host` that the listener answers to, in lower case.

    The entries are those of `configured`. If it is empty, the entry is the host of `public_url`, or
    the listen address if that is unset. A loopback listener then has localhost, 127.0.0.1 and [::1]
    with its port too.

    An entry without a port admits the bare name, and the name with the listener's port, 80 or 443.
    An entry with a port admits that port alone; for 80 and 443 also the bare name, since clients
    leave those ports out.
    """
    entries = list(configured)
    if not entries:
        here = f"[{listen_host}]" if ":" in listen_host else listen_host
        entries.append(urlsplit(public_url).netloc if public_url else f"{here}:{bound_port}")
        if _is_loopback(listen_host):
            entries.extend(f"{name}:{bound_port}" for name in _LOOPBACK_NAMES)
    return frozenset(spelling for entry in entries for spelling in _spellings(entry.lower(), bound_port))


def allowed_origins(hosts: Iterable[str], configured: Iterable[str]) -> frozenset[str]:
    """Return every accepted value of `Origin`, in lower case: the configured ones, or else `hosts`
    over http and https.

    `hosts` is the result of `allowed_hosts`. `null`, which sandboxed pages and local files send, is
    excluded.
    """
    entries = list(configured) or [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
    return frozenset(entry.lower() for entry in entries) - {"null"}


def _spellings(entry: str, bound_port: int) -> Iterator[str]:
    """Return the values of `Host` that one entry admits."""
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
