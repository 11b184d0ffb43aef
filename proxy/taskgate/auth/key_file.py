"""The file of the deployment key: read with the key it replaces, or made if there is none.

Users bind auth contexts and sign audit logs with such keys. No message has any part of a key.
"""

import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from taskgate.clock import Entropy
from taskgate.system.secret_files import ADVICE, FOREIGN, is_foreign, read_secret, write_secret

_MIN_KEY: Final = 32
"""Bytes of a deployment key: a shorter key would be weaker than the digests that it makes."""
_MAX_SIZE: Final = 4096
_KEY: Final = re.compile(rb"[A-Za-z0-9_-]+={0,2}")


class KeyFileRefused(Exception):
    """A key file that cannot be used; the text is for the operator and has no path."""


class DeploymentKeys(NamedTuple):
    """The current key, and the one that it replaces while earlier tasks still need that."""

    current: bytes
    previous: bytes | None


def read_keys(path: Path, *, of: str = "auth contexts") -> DeploymentKeys:
    """Read one or two lines of base64url, the current key first; raises KeyFileRefused.

    `of` is the key's name in the log.
    """
    try:
        text, exposed = read_secret(path, _MAX_SIZE, f"the key of {of}")
        foreign = is_foreign(path)
    except OSError as error:
        raise KeyFileRefused(f"the key file cannot be read: {os.strerror(error.errno or 0)}") from None
    if exposed:
        raise KeyFileRefused(f"the key file {ADVICE}")
    if foreign:
        raise KeyFileRefused(f"the key file {FOREIGN}")
    keys = [_decode(line.strip()) for line in text.splitlines() if line.strip()]
    if len(text) > _MAX_SIZE or not 1 <= len(keys) <= 2:
        raise KeyFileRefused("the key file must hold one key, or two of which the first is the present one")
    return DeploymentKeys(keys[0], keys[1] if len(keys) == 2 else None)


def read_or_make_keys(path: Path, entropy: Entropy, *, of: str = "auth contexts") -> DeploymentKeys:
    """Read the keys, after making a file for its owner alone if there is none.

    Raises KeyFileRefused.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            # Another process may make it first: its key stays.
            with suppress(FileExistsError):
                write_secret(path, urlsafe_b64encode(entropy.token(_MIN_KEY)) + b"\n")
    except OSError as error:
        raise KeyFileRefused(f"the key file cannot be made: {os.strerror(error.errno or 0)}") from None
    return read_keys(path, of=of)


def _decode(line: bytes) -> bytes:
    bare = line.rstrip(b"=")
    try:
        key = urlsafe_b64decode(bare + b"=" * (-len(bare) % 4)) if _KEY.fullmatch(line) else b""
    except ValueError:
        # The number of characters fits no whole number of bytes.
        key = b""
    if len(key) < _MIN_KEY:
        raise KeyFileRefused(f"a key must be base64url of at least {_MIN_KEY} bytes")
    return key
