"""The open `subscriptions/listen` of a scripted server: each has the notifications that its filter names."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from helpers.modern_schema import SUBSCRIPTION
from helpers.server.replies import Turn, transport_of
from helpers.waiting import eventually

_FILTERS: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
    "notifications/widgets/changed": "widgetsChanged",
}


class Listens:
    """All of them; `grants_tasks` says whether one may be for the server's own tasks."""

    def __init__(self) -> None:
        self.grants_tasks = False
        self._open: list[Turn] = []
        self._ended = asyncio.Event()
        self._error: dict[str, Any] | None = None

    @property
    def filters(self) -> list[dict[str, Any]]:
        """The filters of the open ones."""
        return [turn.message["params"]["notifications"] for turn in self._open]

    async def opened(self, count: int = 1) -> None:
        """Wait until so many are open."""
        await eventually(lambda: len(self._open) >= count)

    async def push(self, *messages: Any) -> None:
        """Send messages to every listener whose filter names them, under its own id."""
        for turn in tuple(self._open):
            for message in messages:
                if _names(turn.message["params"]["notifications"], message):
                    with suppress(ConnectionResetError):
                        await turn.send(_tagged(message, turn.id))

    def end(self) -> None:
        """End every one with its result."""
        self._ended.set()
        self._ended = asyncio.Event()

    def fail(self) -> None:
        """End every one with an error."""
        self._error = {"code": -32603, "message": "torn down"}
        self.end()

    def cut(self) -> None:
        """Close their connections."""
        for turn in self._open:
            transport_of(turn.request).close()

    async def serve(self, turn: Turn) -> Any:
        """Acknowledge one, and keep it open until it ends."""
        granted = dict(turn.message["params"]["notifications"])
        if not self.grants_tasks:
            granted.pop("taskIds", None)
        acknowledged = {"method": "notifications/subscriptions/acknowledged", "params": {"notifications": granted}}
        await turn.send(_tagged({"jsonrpc": "2.0", **acknowledged}, turn.id))
        self._open.append(turn)
        try:
            await self._ended.wait()
        finally:
            self._open.remove(turn)
        if self._error is not None:
            return await turn.respond({"jsonrpc": "2.0", "id": turn.id, "error": self._error})
        return await turn.respond(turn.answer({"_meta": {SUBSCRIPTION: turn.id}}))


def _names(filter: dict[str, Any], message: dict[str, Any]) -> bool:
    if message["method"] == "notifications/tasks":
        return message["params"]["taskId"] in filter.get("taskIds", [])
    if message["method"] == "notifications/resources/updated":
        return message["params"]["uri"] in filter.get("resourceSubscriptions", [])
    return filter.get(_FILTERS.get(message["method"], "")) is True


def _tagged(message: dict[str, Any], id: Any) -> dict[str, Any]:
    params = message.get("params", {})
    return {**message, "params": {**params, "_meta": {**params.get("_meta", {}), SUBSCRIPTION: id}}}
