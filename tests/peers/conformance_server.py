"""A server with everything that the official conformance suite asks a server for, on an unmodified SDK.

It runs in the `mcp-1.23.3` environment: `python conformance_server.py` takes a free port, which its log tells. What it
has, its names and its texts are laid down by the suite's scenarios.
"""

import base64
import json
from functools import partial
from typing import Any

from conformance_stateless_tools import tools
from conformance_tools import ask, image, png, resource, schema, text
from mcp import McpError, types
from mcp.server.fastmcp import FastMCP
from mcp.server.lowlevel import NotificationOptions
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from pydantic import AnyUrl


class Memory(EventStore):
    """Every event since the start, so that a stream can be taken up where it was left."""

    def __init__(self) -> None:
        self._events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        stream, _ = self._events[last - 1]
        for number, (place, message) in enumerate(self._events[last:], start=last + 1):
            if place == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


# The outer server is there for its HTTP alone; what it is asked is answered by the low-level one inside.
outer = FastMCP("conformance", port=0, event_store=Memory(), retry_interval=50)
server = outer._mcp_server
watched: set[str] = set()
TELLS = NotificationOptions(prompts_changed=True, tools_changed=True)
server.create_initialization_options = partial(server.create_initialization_options, TELLS)
NOT_FOUND = -32002


@server.list_tools()
async def _list_tools() -> list[types.Tool]:
    return [declared for declared, _ in tools.values()]


# Not by the decorator, which makes a result of whatever a tool raises: the protocol's errors shall stay errors.
async def _call_tool(asked: types.CallToolRequest) -> types.ServerResult:
    try:
        content = await tools[asked.params.name][1](asked.params.arguments or {})
    except McpError:
        raise
    except Exception as error:
        return types.ServerResult(types.CallToolResult(content=[text(str(error))], isError=True))
    return types.ServerResult(types.CallToolResult(content=content))


server.request_handlers[types.CallToolRequest] = _call_tool


@server.list_resources()
async def _list_resources() -> list[types.Resource]:
    kinds = {"static-text": "text/plain", "static-binary": "image/png", "watched-resource": "text/plain"}
    return [
        types.Resource(uri=AnyUrl(f"test://{name}"), name=name, description=f"The {name}", mimeType=kind)
        for name, kind in kinds.items()
    ]


@server.list_resource_templates()
async def _list_templates() -> list[types.ResourceTemplate]:
    place, kind = "test://template/{id}/data", "application/json"
    return [types.ResourceTemplate(uriTemplate=place, name="template", description="By number", mimeType=kind)]


@server.read_resource()
async def _read(uri: AnyUrl) -> list[ReadResourceContents]:
    place = str(uri)
    if place == "test://static-binary":
        return [ReadResourceContents(base64.b64decode(png()), "image/png")]
    if place.startswith("test://template/"):
        number = place.split("/")[3]
        inside = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
        return [ReadResourceContents(json.dumps(inside), "application/json")]
    if place not in {"test://static-text", "test://watched-resource"}:
        raise McpError(types.ErrorData(code=NOT_FOUND, message="Resource not found", data={"uri": place}))
    return [ReadResourceContents("This is the content of the static text resource.", "text/plain")]


@server.subscribe_resource()
async def _subscribe(uri: AnyUrl) -> None:
    watched.add(str(uri))


@server.unsubscribe_resource()
async def _unsubscribe(uri: AnyUrl) -> None:
    watched.discard(str(uri))


@server.list_prompts()
async def _list_prompts() -> list[types.Prompt]:
    takes = {
        "test_simple_prompt": (),
        "test_prompt_with_arguments": ("arg1", "arg2"),
        "test_prompt_with_embedded_resource": ("resourceUri",),
        "test_prompt_with_image": (),
        "test_input_required_result_prompt": (),
    }
    return [
        types.Prompt(
            name=name,
            description=f"The prompt {name}",
            arguments=[types.PromptArgument(name=each, description=f"The {each}", required=True) for each in names],
        )
        for name, names in takes.items()
    ]


@server.get_prompt()
async def _get_prompt(name: str, given: dict[str, str] | None) -> types.GetPromptResult:
    first, second = (given or {}).get("arg1"), (given or {}).get("arg2")
    uri = (given or {}).get("resourceUri", "test://none")
    if name == "test_input_required_result_prompt":
        wanted = schema(("context",), context={"type": "string"})
        told = text(await ask("What context should the prompt use?", wanted))
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=told)])
    said: dict[str, list[types.ContentBlock]] = {
        "test_simple_prompt": [text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": [text(f"Prompt with arguments: arg1='{first}', arg2='{second}'")],
        "test_prompt_with_embedded_resource": [
            resource(uri, "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image": [image(), text("Please analyze the image above.")],
    }
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=each) for each in said[name]])


@server.completion()
async def _complete(_: Any, argument: types.CompletionArgument, __: Any) -> types.Completion:
    words = [word for word in ("paris", "park", "party") if word.startswith(argument.value)]
    return types.Completion(values=words, total=len(words), hasMore=False)


@server.set_logging_level()
async def _set_level(_: types.LoggingLevel) -> None:
    pass


if __name__ == "__main__":
    outer.run(transport="streamable-http")
