"""The console's token: another one for each run, in a file, and the link that signs in with it."""

import os
import secrets
from pathlib import Path

from addresses import Address

FILE = "console.token"


def write_token(folder: Path) -> Path:
    """Writes a new token that only this user may read; returns its file."""
    file = folder / FILE
    file.unlink(missing_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
        written.write(secrets.token_urlsafe(24) + "\n")
    return file


def link_to(admin: Address, folder: Path) -> str:
    """The address of the console. Browsers send nothing of what is behind the `#`."""
    return f"http://{admin}/ui#token={(folder / FILE).read_text().strip()}"
