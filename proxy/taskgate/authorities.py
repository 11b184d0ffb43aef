"""Certificate authorities in files: `trust_of` returns a TLS context that trusts those of a file.

Servers, issuers and token endpoints of a private authority have such files. A gateway without any,
and without token endpoints, does not load this module.
"""

import asyncio
import ssl
from pathlib import Path


class AuthoritiesRefused(Exception):
    """A file that cannot be used. The text says why; it has no path and no content."""


def trust_of(ca_file: Path) -> ssl.SSLContext:
    """Return a context that trusts the authorities of a file, and no others. Raises AuthoritiesRefused."""
    try:
        with ca_file.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise AuthoritiesRefused(f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise AuthoritiesRefused("cannot be read: the file name is invalid") from None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError):
        raise AuthoritiesRefused("holds no certificate in PEM form") from None


async def read_trust(ca_file: Path) -> ssl.SSLContext:
    """Return the same, and read the file on a thread. Raises AuthoritiesRefused."""
    return await asyncio.to_thread(trust_of, ca_file)
