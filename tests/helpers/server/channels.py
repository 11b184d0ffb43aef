"""A scripted server over message channels, whatever they are made of: `sse` and `in_process` have some.

line, asked = await server.asked("tools/call")
line.answer(asked, {"content": []})
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from helpers.server.replies import Turn, error, note
from helpers.server.script import Era, Script
from helpers.waiting import eventually


class Channel(ABC):
    """One channel; `heard` is what was received on it."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []

    @abstractmethod
    def say(self, *messages: Any) -> None:
        """Send objects, or bytes as they are."""

    @abstractmethod
    def exit(self) -> None:
        """End the channel, once all that was said is sent."""

    def written(self, text: str) -> bytes:
        """A text as it stands on the channel."""
        return text.encode()

    def answer(self, asked: dict[str, Any], result: Any) -> None:
        """Answer a request."""
        self.say({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    def methods(self) -> list[str]:
        """The methods of all that was received on it."""
        return [message["method"] for message in self.heard if "method" in message]


class ChannelTurn(Turn):
    """A request that waits for its reply on a channel; statuses and headers are for other carriers."""

    request = None

    def __init__(self, server: Script, line: Channel, message: dict[str, Any]) -> None:
        super().__init__(server, message)
        self.line = line

    async def send(self, *messages: Any) -> None:
        self.line.say(*messages)

    async def respond(self, message: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.line.say(message)

    async def end(self) -> None:
        pass


class ChannelScript(Script):
    """The server; `lines` are its channels.

    `silent` are the methods (and `tool:<name>`) that it leaves to the test.
    """

    def __init__(self, era: Era = "legacy", **script: Any) -> None:
        super().__init__(era, **script)
        self.also = {}
        self.silent: set[str] = set()
        self.lines: list[Any] = []
        self.obeys = False
        """Whether it does what the messages `say`, `heard` and `exit` tell it to."""
        self._replying: dict[asyncio.Task[Any], tuple[Any, Any]] = {}

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [message for line in self.lines for message in line.heard]

    async def asked(self, method: str, times: int = 1) -> tuple[Any, dict[str, Any]]:
        """The message of that method which came as the first, the second, …, and its line."""

        def found() -> list[tuple[Any, dict[str, Any]]]:
            return [(line, each) for line in self.lines for each in line.heard if each.get("method") == method]

        await eventually(lambda: len(found()) >= times)
        return found()[times - 1]

    def receive(self, line: Channel, message: dict[str, Any]) -> None:
        """Reply to a message at the next turn of the loop."""
        replying = asyncio.ensure_future(self.handle(line, message))
        self._replying[replying] = (line, message.get("id"))
        replying.add_done_callback(self._replying.pop)

    async def handle(self, line: Channel, message: dict[str, Any]) -> None:
        """Reply to a message."""
        method = message.get("method")
        if self.obeys:
            self._obey(line, message)
        if method == "notifications/cancelled":
            cancelled = (line, message["params"]["requestId"])
            for replying in [each for each, asked in self._replying.items() if asked == cancelled]:
                replying.cancel()
        if "id" in message and method is not None and not {method, f"tool:{_tool(message)}"} & self.silent:
            await self.reply(ChannelTurn(self, line, message))

    async def usual(self, turn: Turn) -> Any:
        if turn.message["method"] == ("initialize" if turn.is_modern else "server/discover"):
            return await error(-32601, "Method not found")(turn)
        return await super().usual(turn)

    async def stop_replies(self) -> None:
        """Cancel the replies that still wait."""
        for replying in tuple(self._replying):
            replying.cancel()
        await asyncio.gather(*self._replying, return_exceptions=True)

    def _obey(self, line: Channel, message: dict[str, Any]) -> None:
        match message["method"]:
            case "say":
                for each in message["params"]["lines"]:
                    line.say(line.written(each))
            case "heard":
                line.say(note("notifications/heard", all=list(line.heard)))
            case "exit":
                line.exit()


def _tool(message: dict[str, Any]) -> Any:
    return message.get("params", {}).get("name")
