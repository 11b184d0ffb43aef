"""An operator who uses the API."""

import json
from pathlib import Path
from typing import Any

from helpers.whole_gateway import WholeGateway

OPS, VIEWER = "Bearer token-of-an-operator", "Bearer token-of-a-viewer"
ROLES = {"ops": ("operator", OPS), "looks": ("viewer", VIEWER)}


def tokens(folder: Path) -> dict[str, Any]:
    """The section `admin` with a token of each role, whose files are in the folder."""
    found = []
    for name, (role, bearer) in ROLES.items():
        file = folder / f"{name}.token"
        file.write_text(bearer.removeprefix("Bearer "))
        file.chmod(0o600)
        found.append({"file": str(file), "role": role, "name": name})
    return {"listen": "127.0.0.1:0", "tokens": found}


async def look(gateway: WholeGateway, path: str) -> dict[str, Any]:
    """What a viewer is shown."""
    status, body = await gateway.operators(path, Authorization=VIEWER)
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


async def look_at_all(gateway: WholeGateway, path: str) -> list[dict[str, Any]]:
    """The items of all pages of a list; `path` has a query."""
    found: list[dict[str, Any]] = []
    page = await look(gateway, path)
    while page["next"] is not None:
        found += page["items"]
        page = await look(gateway, f"{path}&cursor={page['next']}")
    return found + page["items"]


async def act(gateway: WholeGateway, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and document of an action of an operator."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": OPS, "Content-Type": "application/json"}
    status, _, answered = await gateway.operators_answer(path, "POST", data, **headers)
    return status, json.loads(answered)
