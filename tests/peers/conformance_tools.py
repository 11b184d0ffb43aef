"""The tools that the official conformance suite calls: its scenarios lay down their names, texts and schemas."""

import asyncio
import base64
import json
import struct
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

from mcp import types
from mcp.server.lowlevel.server import request_ctx
from pydantic import AnyUrl

Tool = Callable[[dict[str, Any]], Awaitable[list[types.ContentBlock]]]

tools: dict[str, tuple[types.Tool, Tool]] = {}
"""By name: what tools/list tells of it, and what runs."""


def png() -> str:
    """A red pixel, in base64."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    image = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00")) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + image).decode()


def wav() -> str:
    """Two samples of silence, in base64."""
    form = (
        b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8) + b"data" + struct.pack("<I", 2) + b"\x80" * 2
    )
    return base64.b64encode(b"RIFF" + struct.pack("<I", len(form)) + form).decode()


def text(content: str) -> types.TextContent:
    return types.TextContent(type="text", text=content)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=png(), mimeType="image/png")


def resource(uri: str, kind: str, content: str) -> types.EmbeddedResource:
    inside = types.TextResourceContents(uri=AnyUrl(uri), mimeType=kind, text=content)
    return types.EmbeddedResource(type="resource", resource=inside)


def schema(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required]}


def tool(name: str, description: str, takes: dict[str, Any] | None = None) -> Callable[[Tool], Tool]:
    """Makes a function the tool of that name."""

    def register(function: Tool) -> Tool:
        declared = types.Tool(name=name, description=description, inputSchema=takes or schema())
        tools[name] = (declared, function)
        return function

    return register


@tool("test_simple_text", "Returns a text")
async def _simple(_: dict[str, Any]) -> list[types.ContentBlock]:
    return [text("This is a simple text response for testing.")]


@tool("test_image_content", "Returns an image")
async def _image(_: dict[str, Any]) -> list[types.ContentBlock]:
    return [image()]


@tool("test_audio_content", "Returns a sound")
async def _audio(_: dict[str, Any]) -> list[types.ContentBlock]:
    return [types.AudioContent(type="audio", data=wav(), mimeType="audio/wav")]


@tool("test_embedded_resource", "Returns a resource")
async def _embedded(_: dict[str, Any]) -> list[types.ContentBlock]:
    return [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]


@tool("test_multiple_content_types", "Returns a text, an image and a resource")
async def _mixed(_: dict[str, Any]) -> list[types.ContentBlock]:
    inside = json.dumps({"test": "data", "value": 123})
    last = resource("test://mixed-content-resource", "application/json", inside)
    return [text("Multiple content types test:"), image(), last]


@tool("test_tool_with_logging", "Logs while it runs")
async def _logging(_: dict[str, Any]) -> list[types.ContentBlock]:
    asked = request_ctx.get()
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await asked.session.send_log_message("info", line, related_request_id=asked.request_id)
        await asyncio.sleep(0.05)
    return [text("Logged three times.")]


@tool("test_error_handling", "Fails")
async def _error(_: dict[str, Any]) -> list[types.ContentBlock]:
    raise ValueError("This tool intentionally returns an error for testing")


@tool("test_tool_with_progress", "Reports progress while it runs")
async def _progress(_: dict[str, Any]) -> list[types.ContentBlock]:
    asked = request_ctx.get()
    token = asked.meta.progressToken if asked.meta else None
    for done in (0, 50, 100):
        if token is not None:
            await asked.session.send_progress_notification(token, done, 100, related_request_id=str(asked.request_id))
        await asyncio.sleep(0.05)
    return [text("Went from 0 to 100.")]


@tool("test_reconnection", "Closes its stream before it answers")
async def _reconnection(_: dict[str, Any]) -> list[types.ContentBlock]:
    asked = request_ctx.get()
    if asked.close_sse_stream is not None:
        await asked.close_sse_stream()
    await asyncio.sleep(0.1)
    return [text("Answered after the stream was closed.")]


@tool("test_sampling", "Asks the host's model", schema(("prompt",), prompt={"type": "string"}))
async def _sampling(given: dict[str, Any]) -> list[types.ContentBlock]:
    asked = request_ctx.get()
    prompt = types.SamplingMessage(role="user", content=text(given["prompt"]))
    said = await asked.session.create_message([prompt], max_tokens=100, related_request_id=asked.request_id)
    return [text(f"LLM response: {getattr(said.content, 'text', '')}")]


async def ask(message: str, wanted: dict[str, Any]) -> str:
    """What the user has answered, as the suite wants it told."""
    asked = request_ctx.get()
    answer = await asked.session.elicit(message, wanted, related_request_id=asked.request_id)
    return f"action={answer.action}, content={json.dumps(answer.content or {})}"


@tool("test_elicitation", "Asks the user", schema(("message",), message={"type": "string"}))
async def _elicitation(given: dict[str, Any]) -> list[types.ContentBlock]:
    wanted = schema(
        ("username", "email"),
        username={"type": "string", "description": "User's response"},
        email={"type": "string", "description": "User's email address"},
    )
    return [text(f"User response: {await ask(given['message'], wanted)}")]


@tool("test_elicitation_sep1034_defaults", "Asks the user, with defaults")
async def _defaults(_: dict[str, Any]) -> list[types.ContentBlock]:
    wanted = schema(
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    return [text(f"Elicitation completed: {await ask('Is all this right?', wanted)}")]


@tool("test_elicitation_sep1330_enums", "Asks the user to choose")
async def _enums(_: dict[str, Any]) -> list[types.ContentBlock]:
    plain = ["option1", "option2", "option3"]
    firsts = ["First", "Second", "Third"]
    titled = [{"const": f"value{at}", "title": f"{word} Option"} for at, word in enumerate(firsts, start=1)]
    choices = [{"const": f"value{at}", "title": f"{word} Choice"} for at, word in enumerate(firsts, start=1)]
    names = ["Option One", "Option Two", "Option Three"]
    wanted = schema(
        untitledSingle={"type": "string", "enum": plain},
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": plain}},
        titledMulti={"type": "array", "items": {"anyOf": choices}},
    )
    return [text(f"Elicitation completed: {await ask('Which?', wanted)}")]


@tool(
    "json_schema_2020_12_tool",
    "Tool with JSON Schema 2020-12 features",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
async def _modern_schema(given: dict[str, Any]) -> list[types.ContentBlock]:
    return [text(json.dumps(given))]
