"""A file with a bearer token: `read_token`."""

import re
from pathlib import Path
from typing import Final

from taskgate.system.secret_files import ADVICE, read_secret

_MAX_TOKEN: Final = 32 * 2**10
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


class TokenFileInvalid(ValueError):
    """The file cannot be used; the text is for the operator and repeats nothing of the file."""


def read_token(file: Path) -> str:
    """The token in a file, without white space around it. Raises TokenFileInvalid."""
    try:
        content, exposed = read_secret(file, _MAX_TOKEN, "--token")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise TokenFileInvalid(f"--token: {file} cannot be read: {reason}") from None
    if exposed:
        raise TokenFileInvalid(f"--token: {file} {ADVICE}")
    token = content.decode("latin-1").strip()
    if len(content) > _MAX_TOKEN or not _TOKEN.fullmatch(token):
        raise TokenFileInvalid(f"--token: {file} must hold one token of visible ASCII characters")
    return token
