"""The official conformance suites, as processes that judge a server: what they say of it, by scenario."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interop.peers import ANSWERS_WITHIN, output_of
from peers import install


def passes(checks: list[dict[str, Any]]) -> bool:
    """Whether a scenario passed: something was checked, and nothing of it even warned about."""
    said = {check["status"] for check in checks}
    return "SUCCESS" in said and not said & {"FAILURE", "WARNING"}


def complaints(checks: list[dict[str, Any]]) -> list[str]:
    """What the suite holds against a server in one scenario."""
    return [f"{check['id']}: {check.get('errorMessage')}" for check in checks if check["status"] != "SUCCESS"]


async def judged(
    suite: Path, url: str, folder: Path, *options: str, within: float = ANSWERS_WITHIN
) -> Mapping[str, list[dict[str, Any]]]:
    """The checks of every scenario that the options choose, by the scenario's name."""
    command = [install.node(), suite, "server", "--url", url, "--output-dir", folder, *options]
    status, output, errors = await output_of(command, within=within)
    found = {place.parent.name: json.loads(place.read_text()) for place in folder.glob("*/checks.json")}
    assert found, f"status {status}: {output}{errors}"
    # The folders are called server-SCENARIO-TIME, the time being the last 24 characters.
    return {name.removeprefix("server-")[: -len("-2026-01-01T00-00-00-000Z")]: checks for name, checks in found.items()}
