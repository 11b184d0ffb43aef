"""The deployment key in a file: made where there is none, and read with the key it replaces.

What must not live here: what the keys are for. What holds: nothing of a key is in any message.
"""

import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from typing import Final, NamedTuple

from taskgate.auth.binding import MIN_KEY
from taskgate.clock import Entropy
from taskgate.system.secret_files import ADVICE, is_exposed

_LONGEST: Final = 4096
_KEY: Final = re.compile(rb"[A-Za-z0-9_-]+={0,2}")


class KeyFileRefused(Exception):
    """The file cannot be used; the text is for the operator, and names no path."""


class DeploymentKeys(NamedTuple):
    """The present key, and the one that it replaces while what was bound to that is still wanted."""

    current: bytes
    previous: bytes | None


def read_keys(path: Path, *, of: str = "auth contexts") -> DeploymentKeys:
    """The keys of a file: one or two lines of base64url, the present key first. Raises KeyFileRefused.

    `of` is what the log calls them.
    """
    try:
        with path.open("rb") as file:
            exposed = is_exposed(path, os.fstat(file.fileno()).st_mode, f"the key of {of}")
            text = file.read(_LONGEST + 1)
    except OSError as error:
        raise KeyFileRefused(f"the key file cannot be read: {os.strerror(error.errno or 0)}") from None
    if exposed:
        raise KeyFileRefused(f"the key file {ADVICE}")
    keys = [_decoded(line.strip()) for line in text.splitlines() if line.strip()]
    if len(text) > _LONGEST or not 1 <= len(keys) <= 2:
        raise KeyFileRefused("the key file must hold one key, or two of which the first is the present one")
    return DeploymentKeys(keys[0], keys[1] if len(keys) == 2 else None)


def made_keys(path: Path, entropy: Entropy, *, of: str = "auth contexts") -> DeploymentKeys:
    """The keys of a file that is made, for its owner alone, where there is none; see `read_keys`.

    Raises KeyFileRefused.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _make(path, urlsafe_b64encode(entropy.token(MIN_KEY)) + b"\n")
    except OSError as error:
        raise KeyFileRefused(f"the key file cannot be made: {os.strerror(error.errno or 0)}") from None
    return read_keys(path, of=of)


def _make(path: Path, text: bytes) -> None:
    """The file appears whole or not at all, and who comes second keeps what is there. Raises OSError."""
    handle, unfinished = mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(unfinished, path)
    finally:
        os.unlink(unfinished)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _decoded(line: bytes) -> bytes:
    bare = line.rstrip(b"=")
    try:
        key = urlsafe_b64decode(bare + b"=" * (-len(bare) % 4)) if _KEY.fullmatch(line) else b""
    except ValueError:
        # One letter more than whole bytes take.
        key = b""
    if len(key) < MIN_KEY:
        raise KeyFileRefused(f"a key must be base64url of at least {MIN_KEY} bytes")
    return key
