"""The published schemas of the protocol: from a folder beside the checkout, else out of a released suite of the peers.

The conformance suite has those of 2025-03-26 and later inside. No released package has that of 2024-11-05, or of the
tasks extension.
"""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

from peers import install

SHARED: Final = Path(__file__).parents[3] / "shared" / "spec" / "schema"
SUITE: Final = install.HOME / "node_modules" / "conformance-next" / "dist" / "index.js"
READER: Final = install.HOME / "schemas.mjs"
RELEASED: Final = frozenset({"2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"})


@cache
def published(name: str) -> dict[str, Any] | None:
    """The schema of a revision, or `tasks-extension`; None where it is not here."""
    file = SHARED / f"{name}.json"
    if file.is_file():
        schema: dict[str, Any] = json.loads(file.read_bytes())
        return schema
    return of_the_suite().get(name)


def absent(name: str) -> str:
    """Why a test is skipped that needs it."""
    return f"the published schema of {name} is {'not here (make peers)' if name in RELEASED else 'in no package'}"


@cache
def of_the_suite() -> dict[str, dict[str, Any]]:
    """The schemas in the suite, by revision; none where it is not installed."""
    try:
        command = (install.node(), READER, SUITE)
    except install.PeersNotInstalled:
        return {}
    if not SUITE.is_file():
        return {}
    read = subprocess.run(command, capture_output=True, timeout=30, check=True)
    found: dict[str, dict[str, Any]] = json.loads(read.stdout)
    return found
