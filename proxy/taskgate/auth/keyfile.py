"""The deployment key in a file: made where there is none, and read with the key it replaces.

What must not live here: what the keys are for. What holds: nothing of a key is in any message.
"""

import os
import re
import stat
from base64 import urlsafe_b64decode, urlsafe_b64encode
from logging import getLogger
from pathlib import Path
from typing import Final, NamedTuple

from taskgate.auth.binding import MIN_KEY
from taskgate.clock import Entropy

_LONGEST: Final = 4096
_KEY: Final = re.compile(rb"[A-Za-z0-9_-]+={0,2}")

log = getLogger("taskgate.auth")


class KeyFileRefused(Exception):
    """The file cannot be used; the text is for the operator, and names no path."""


class DeploymentKeys(NamedTuple):
    """The present key, and the one that it replaces while what was bound to that is still wanted."""

    current: bytes
    previous: bytes | None


def read_keys(path: Path) -> DeploymentKeys:
    """The keys of a file: one or two lines of base64url, the present key first. Raises KeyFileRefused."""
    try:
        with path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o007:
                log.warning("everybody on this machine may read the key of auth contexts")
            text = file.read(_LONGEST + 1)
    except OSError as error:
        raise KeyFileRefused(f"the key file cannot be read: {os.strerror(error.errno or 0)}") from None
    keys = [_decoded(line.strip()) for line in text.splitlines() if line.strip()]
    if len(text) > _LONGEST or not 1 <= len(keys) <= 2:
        raise KeyFileRefused("the key file must hold one key, or two of which the first is the present one")
    return DeploymentKeys(keys[0], keys[1] if len(keys) == 2 else None)


def made_keys(path: Path, entropy: Entropy) -> DeploymentKeys:
    """The keys of a file that is made, for its owner alone, where there is none. Raises KeyFileRefused."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_keys(path)
    except OSError as error:
        raise KeyFileRefused(f"the key file cannot be made: {os.strerror(error.errno or 0)}") from None
    with os.fdopen(handle, "wb") as file:
        file.write(urlsafe_b64encode(entropy.token(MIN_KEY)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return read_keys(path)


def _decoded(line: bytes) -> bytes:
    key = (
        b""
        if _KEY.fullmatch(line) is None
        else urlsafe_b64decode(line.rstrip(b"=") + b"=" * (-len(line.rstrip(b"=")) % 4))
    )
    if len(key) < MIN_KEY:
        raise KeyFileRefused(f"a key must be base64url of at least {MIN_KEY} bytes")
    return key
