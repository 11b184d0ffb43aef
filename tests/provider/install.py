"""What the tests' identity provider runs on: its pinned packages, under `node_modules` beside this file.

`python tests/provider/install.py` installs them. Nothing is done twice: what is there carries a stamp of the lock file
that it was made from, written last. Where they come from is npm's own configuration: the lock names no registry. Only
the standard library is used here. Where Node.js is missing that is said and is no failure: the tests that need it are
skipped then. With TASKGATE_REQUIRE_ALL=1 it is a failure.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).resolve().parent
LOCK = HOME / "package-lock.json"
STAMP = HOME / "node_modules" / "made-from"
OLDEST_NODE = 18

WITHIN_A_TEST = 40.0  # seconds; less than a test may take, for its own set-up may have to install
AT_LENGTH = 300.0  # where somebody waits for just this
_OPTIONS = ("--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error")
# A registry that is out of reach is told of soon, not after npm's usual minute and more.
_RETRIES = ("--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000")


class ProviderNotInstalled(Exception):
    """The identity provider cannot be had; the text says why, for a person to read."""


def nothing_may_be_missing() -> bool:
    """Whether what cannot be had here is a failure instead of a reason to skip."""
    return os.environ.get("TASKGATE_REQUIRE_ALL") == "1"


def node() -> str:
    """The path of a Node.js that is new enough. Raises ProviderNotInstalled."""
    path = _program("node")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=WITHIN_A_TEST)
    major = re.match(r"v(\d+)\.", version.stdout)
    if major is None or int(major[1]) < OLDEST_NODE:
        said = version.stdout.strip() or "no version"
        raise ProviderNotInstalled(f"identity provider: {path} is {said}, Node.js {OLDEST_NODE} or newer is needed")
    return path


def ensure(*, within: float = WITHIN_A_TEST) -> bool:
    """Installs the packages unless they are there, and returns whether there was anything to do.

    npm has `within` seconds. Two processes may ask at once: the second waits and finds them there. Raises
    ProviderNotInstalled, also where there is no Node.js to run them.
    """
    node()
    with _locked():
        wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
        if _stamped() == wanted:
            return False
        _install(_program("npm"), within)
        STAMP.write_text(wanted)
        return True


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise ProviderNotInstalled(f"identity provider: there is no {name} (Debian: apt-get install nodejs npm)")
    return path


def _stamped() -> str | None:
    try:
        return STAMP.read_text()
    except FileNotFoundError:
        return None


def _install(npm: str, within: float) -> None:
    # Whatever `npm ci` leaves when it fails has no stamp, or an older lock's: it is installed anew the next time.
    try:
        installed = subprocess.run(
            [npm, "ci", *_OPTIONS, *_RETRIES],
            cwd=HOME,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=within,
        )
    except subprocess.TimeoutExpired as error:
        raise ProviderNotInstalled(f"identity provider: npm ci took longer than {within:.0f} s") from error
    if installed.returncode:
        last_lines = "\n".join(f"    {line}" for line in installed.stdout.splitlines()[-8:])
        raise ProviderNotInstalled(f"identity provider: npm ci failed, its last lines:\n{last_lines}")


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    with LOCK.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go when the file closes, also by a crash
        yield


def main() -> int:
    """Installs; returns the exit status."""
    try:
        made = ensure(within=AT_LENGTH)
    except ProviderNotInstalled as reason:
        sys.stderr.write(f"{reason}\n")
        return 1 if nothing_may_be_missing() else 0
    sys.stdout.write(f"identity provider: {'installed' if made else 'there already'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
