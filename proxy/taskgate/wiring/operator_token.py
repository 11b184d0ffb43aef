"""The token of operators that `init` writes beside a configuration, and `serve` makes where none is configured.

`serve` makes one for a listener of this machine alone. It is good until the end, and lies in the data directory, so
that no log has it. The name of that file has the port: gateways without a store of their own may share a directory.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from logging import getLogger
from pathlib import Path
from typing import Final

from taskgate.clock import Entropy
from taskgate.config import GatewayConfig
from taskgate.system.secret_files import write_secret

OPERATOR_TOKEN: Final = "operator.token"  # noqa: S105 - the name of a file
"""The name of the file that `init` writes."""
_BYTES: Final = 24

log = getLogger("taskgate.operators")


def new_token(entropy: Entropy) -> bytes:
    """Make a token: 32 visible characters."""
    return urlsafe_b64encode(entropy.token(_BYTES))


def own_token(config: GatewayConfig, entropy: Entropy) -> bytes | None:
    """Make the token of a gateway without configured ones, if its listener for operators is of this machine alone."""
    admin = config.admin
    is_configured = admin.token_file is not None or bool(admin.tokens)
    return None if is_configured or not admin.listen.is_loopback else new_token(entropy)


@contextmanager
def kept_token(token: bytes | None, directory: Path | None, port: int) -> Iterator[Path | None]:
    """Keep the own token in the data directory for the length of the block; its file, or None without one."""
    if token is None or directory is None:
        yield None
        return
    file = directory / f"operator-{port}.token"
    try:
        write_secret(file, token, replaces=True)
    except OSError as error:
        log.warning("the token of operators has no file", extra={"file": str(file), "reason": error.strerror})
        yield None
        return
    try:
        yield file
    finally:
        with suppress(OSError):
            # Another gateway at that port may have its own by now.
            if file.read_bytes() == token:
                file.unlink()
