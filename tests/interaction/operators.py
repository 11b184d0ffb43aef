"""An operator who uses the API."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from helpers.gateway.gateway import Gateway
from helpers.waiting import bounded

OPS, VIEWER = "Bearer token-of-an-operator-0123", "Bearer token-of-a-viewer-0123"
EVENTS = "/api/v1/events"
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


async def look(gateway: Gateway, path: str) -> dict[str, Any]:
    """What a viewer is shown."""
    status, body = await gateway.operators(path, Authorization=VIEWER)
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


async def look_at_all(gateway: Gateway, path: str) -> list[dict[str, Any]]:
    """The items of all pages of a list; `path` has a query."""
    found: list[dict[str, Any]] = []
    page = await look(gateway, path)
    while page["next"] is not None:
        found += page["items"]
        page = await look(gateway, f"{path}&cursor={page['next']}")
    return found + page["items"]


async def act(gateway: Gateway, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and document of an action of an operator."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": OPS, "Content-Type": "application/json"}
    status, _, answered = await gateway.operators_answer(path, "POST", data, **headers)
    return status, json.loads(answered)


class Stream:
    """An open event stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self, *names: str) -> tuple[str, str, dict[str, Any]]:
        """Name, id and data of the next event of these names."""
        fields: dict[str, str] = {}
        async with bounded():
            while line := await self.response.content.readline():
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if line != b"\n":
                    fields[name] = value
                elif fields.get("event") in names:
                    return fields["event"], fields["id"], json.loads(fields["data"])
                else:
                    fields = {}
        raise EOFError

    async def ends(self) -> None:
        """Read to its end."""
        async with bounded():
            while await self.response.content.readline():
                pass


@asynccontextmanager
async def stream(gateway: Gateway, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    """A stream, whose reader has the token of a viewer."""
    sent = {"Authorization": VIEWER, **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with gateway.http.get(f"{gateway.operators_origin}{EVENTS}{query}", headers=sent) as response:
        assert (response.status, response.content_type) == (200, "text/event-stream"), await response.text()
        yield Stream(response)
