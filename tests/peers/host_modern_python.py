"""A host on the Python SDK 2.3, speaking 2026-07-28: calls tools, and answers whatever it is asked in rounds.

`python host_modern_python.py URL TOOL ARGUMENTS …` does what host_python.py does with `--plainly`. The SDK has no words
for tasks.
"""

import asyncio
import json
import sys
from typing import Any

import mcp_types as types
from mcp import Client, MCPError

ENDS_WITHIN = 12.0
"""Seconds for one call."""

Seen = dict[str, list[Any]]


class Ears:
    """What the host is told and asked, noted and answered."""

    def __init__(self) -> None:
        self.seen: Seen = {}
        self.begin()

    def begin(self) -> None:
        self.seen = {name: [] for name in ("questions", "progress", "logs")}

    async def elicit(self, _: Any, params: Any) -> types.ElicitResult:
        """The user's answer: the question's number or last word, in capitals."""
        self.seen["questions"].append("elicitation/create")
        if getattr(params, "mode", "form") == "url":
            return types.ElicitResult(action="accept")
        word = params.message.rstrip("?").split()[-1].upper()
        return types.ElicitResult(action="accept", content={"word": f"WORD-{word}"})

    async def sample(self, _: Any, params: types.CreateMessageRequestParams) -> Any:
        """The model's answer: the tool, where it is offered one that it has not used yet, else what it was told."""
        self.seen["questions"].append("sampling/createMessage")
        told: dict[str, Any] = {"role": "assistant", "model": "parrot"}
        last = params.messages[-1].content_as_list[0]
        if isinstance(last, types.ToolResultContent):
            told["content"] = {"type": "text", "text": f"thought: {getattr(last.content[0], 'text', '')}"}
        elif params.tools:
            use = {"type": "tool_use", "id": "use-1", "name": params.tools[0].name, "input": {"city": "Oslo"}}
            return types.CreateMessageResultWithTools.model_validate(told | {"content": [use], "stopReason": "toolUse"})
        else:
            told["content"] = {"type": "text", "text": f"thought: {getattr(last, 'text', '')}"}
        return types.CreateMessageResult.model_validate(told)

    async def roots(self, _: Any) -> types.ListRootsResult:
        self.seen["questions"].append("roots/list")
        return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///srv/books"}]})

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.seen["logs"].append(params.data)

    async def further(self, progress: float, _: float | None, __: str | None) -> None:
        self.seen["progress"].append(progress)


async def told_of(client: Client, ears: Ears, tool: str, given: dict[str, Any]) -> dict[str, Any]:
    """What is said of one call, which has to end in time."""
    try:
        async with asyncio.timeout(ENDS_WITHIN):
            result = await client.call_tool(tool, given, progress_callback=ears.further)
    except MCPError as error:
        return {"error": {"code": error.code, "message": error.message}}
    except TimeoutError:
        return {"error": {"code": None, "message": "no end"}}
    text = " ".join(getattr(block, "text", block.type) for block in result.content)
    return {"result": text, "isError": bool(result.is_error)}


async def play(url: str, words: list[str]) -> None:
    """One call after the other."""
    ears = Ears()
    abilities = types.SamplingCapability(tools=types.SamplingToolsCapability())
    async with Client(
        url,
        elicitation_callback=ears.elicit,
        sampling_callback=ears.sample,
        sampling_capabilities=abilities,
        list_roots_callback=ears.roots,
        logging_callback=ears.log,
        log_level="debug",
    ) as client:
        for tool, given in zip(words[::2], words[1::2], strict=True):
            ears.begin()
            told = await told_of(client, ears, tool, json.loads(given))
            sys.stdout.write(json.dumps(told | ears.seen) + "\n")


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1], sys.argv[2:]))
