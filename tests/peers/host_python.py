"""A host on the official Python SDK: calls tools, as tasks or plainly, and answers whatever it is asked meanwhile.

`python host_python.py URL [--plainly] [--together] TOOL ARGUMENTS …` has one session, makes one call after the other,
or all together, and prints one line of JSON for each: its `result` or `error`, and, in the order seen, `statuses`,
`questions`, `progress`, `logs` and `notifications`; calls made together have these together. After a call that does
not end there are no more.
"""

import asyncio
import itertools
import json
import logging
import os
import sys
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
from mcp import ClientSession, McpError
from mcp import types as mcp_types
from mcp.client.streamable_http import streamable_http_client
from pydantic import FileUrl

Seen = dict[str, list[Any]]
Caller = Callable[[str, dict[str, Any], Seen], Awaitable[mcp_types.CallToolResult]]
ENDS_WITHIN = float(os.environ.get("ENDS_WITHIN", "12"))
"""Seconds for one call."""
NO_END = {"error": {"code": None, "message": "no end"}}

numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Calls:
    """What to do; a call is a tool and its arguments."""

    url: str
    made: list[tuple[str, dict[str, Any]]]
    plainly: bool
    together: bool


def new_seen() -> Seen:
    """Nothing yet."""
    return {name: [] for name in ("statuses", "questions", "progress", "logs", "notifications")}


def answer_of(params: Any) -> mcp_types.ElicitResult:
    """The user's answer: the question's number or last word, in capitals."""
    if getattr(params, "mode", "form") == "url":
        return mcp_types.ElicitResult(action="accept")
    word = params.message.rstrip("?").split()[-1].upper()
    return mcp_types.ElicitResult(action="accept", content={"word": f"WORD-{word}"})


def thought_of(params: mcp_types.CreateMessageRequestParams) -> Any:
    """The model's answer: the tool, where it is offered one that it has not used yet, else what it was told."""
    last = params.messages[-1].content_as_list[0]
    told: dict[str, Any] = {"role": "assistant", "model": "parrot"}
    if isinstance(last, mcp_types.ToolResultContent):
        told["content"] = {"type": "text", "text": f"thought: {last.content[0].text}"}  # type: ignore[union-attr]
    elif params.tools:
        use = {"type": "tool_use", "id": "use-1", "name": params.tools[0].name, "input": {"city": "Oslo"}}
        told |= {"content": [use], "stopReason": "toolUse"}
        return mcp_types.CreateMessageResultWithTools.model_validate(told)
    else:
        told["content"] = {"type": "text", "text": f"thought: {getattr(last, 'text', '')}"}
    return mcp_types.CreateMessageResult.model_validate(told)


class Ears:
    """What the session tells its host, noted and answered."""

    def __init__(self) -> None:
        self.seen = new_seen()

    def begin(self) -> Seen:
        self.seen = new_seen()
        return self.seen

    async def elicit(self, _: Any, params: Any) -> mcp_types.ElicitResult:
        self.seen["questions"].append("elicitation/create")
        return answer_of(params)

    async def sample(self, _: Any, params: mcp_types.CreateMessageRequestParams) -> Any:
        self.seen["questions"].append("sampling/createMessage")
        return thought_of(params)

    async def roots(self, _: Any) -> mcp_types.ListRootsResult:
        self.seen["questions"].append("roots/list")
        return mcp_types.ListRootsResult(roots=[mcp_types.Root(uri=FileUrl("file:///srv/books"))])

    async def log(self, params: mcp_types.LoggingMessageNotificationParams) -> None:
        self.seen["logs"].append(params.data)

    async def hear(self, message: Any) -> None:
        # Whatever comes after CreateTaskResult is heard only here: the call's own callback is gone by then.
        if isinstance(message, mcp_types.ServerNotification):
            kind = message.root
            if isinstance(kind, mcp_types.ProgressNotification):
                self.seen["progress"].append(kind.params.progress)
            self.seen["notifications"].append(kind.method)

    def session(self, incoming: Any, outgoing: Any) -> ClientSession:
        return ClientSession(
            incoming,
            outgoing,
            sampling_callback=self.sample,
            sampling_capabilities=mcp_types.SamplingCapability(tools=mcp_types.SamplingToolsCapability()),
            elicitation_callback=self.elicit,
            list_roots_callback=self.roots,
            logging_callback=self.log,
            message_handler=self.hear,
        )


async def as_task(session: ClientSession, tool: str, given: dict[str, Any], seen: Seen) -> mcp_types.CallToolResult:
    """Calls it as a task: polls, and once input is required waits for the result, by which questions may come."""
    tasks = session.experimental
    created = await tasks.call_tool_as_task(tool, given, meta={"progressToken": f"call {next(numbers)}"})
    seen["statuses"].append(created.task.status)
    async for status in tasks.poll_task(created.task.taskId):
        seen["statuses"].append(status.status)
        if status.status == "input_required":
            break
    result = await tasks.get_task_result(created.task.taskId, mcp_types.CallToolResult)
    seen["statuses"].append((await tasks.get_task(created.task.taskId)).status)
    return result


async def told_of(call: Awaitable[mcp_types.CallToolResult]) -> dict[str, Any]:
    """What is said of one call, which has to end in time."""
    try:
        async with asyncio.timeout(ENDS_WITHIN):
            result = await call
    except McpError as error:
        return {"error": {"code": error.error.code, "message": error.error.message}}
    except TimeoutError:
        return NO_END
    text = " ".join(getattr(block, "text", block.type) for block in result.content)
    return {"result": text, "isError": bool(result.isError)}


async def tell_of(calls: Calls, begin: Callable[[], Seen], call: Caller, ping: Callable[[], Awaitable[Any]]) -> None:
    """Makes the calls and says what came of them. `begin` gives what is noted from then on."""
    for group in [calls.made] if calls.together else [[each] for each in calls.made]:
        seen = begin()
        told = await asyncio.gather(*(told_of(call(tool, given, seen)) for tool, given in group))
        with suppress(McpError, TimeoutError):  # what is on its way on another stream has come by the time this has
            async with asyncio.timeout(ENDS_WITHIN):
                await ping()
        for each in told:
            sys.stdout.write(json.dumps(each | seen) + "\n")
        sys.stdout.flush()
        if NO_END in told:
            os._exit(1)  # it may not end politely either


async def play(calls: Calls) -> None:
    """One session with these calls."""
    ears = Ears()

    async def nothing(*_: Any) -> None: ...

    async with (
        httpx.AsyncClient(trust_env=False, timeout=httpx.Timeout(30, read=300)) as http,
        streamable_http_client(calls.url, http_client=http) as (incoming, outgoing, _),
        ears.session(incoming, outgoing) as session,
    ):
        await session.initialize()

        async def call(tool: str, given: dict[str, Any], seen: Seen) -> mcp_types.CallToolResult:
            if calls.plainly:
                return await session.call_tool(tool, given, progress_callback=nothing)
            return await as_task(session, tool, given, seen)

        await tell_of(calls, ears.begin, call, session.send_ping)


def command_line() -> Calls:
    """What every host takes."""
    url, *words = (word for word in sys.argv[1:] if not word.startswith("--"))
    made = [(tool, json.loads(given)) for tool, given in zip(words[::2], words[1::2], strict=True)]
    return Calls(url=url, made=made, plainly="--plainly" in sys.argv, together="--together" in sys.argv)


def run(host: Callable[[Calls], Coroutine[Any, Any, None]]) -> None:
    """Plays what the command line says."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    asyncio.run(host(command_line()))


if __name__ == "__main__":
    run(play)
