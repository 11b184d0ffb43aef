"""The tools that the conformance suite of the stateless era calls, as a server of the initialize era offers them.

They know of no tasks and of no rounds: they block, ask their host in the middle of the call, and answer. Names, texts
and schemas are laid down by the suite's scenarios. `tools` are these and all others.
"""

import asyncio
from typing import Any

from conformance_tools import ask, schema, text, tool, tools
from mcp import McpError, types
from mcp.server.lowlevel.server import request_ctx
from mcp.shared.message import ServerMessageMetadata

__all__ = ["tools"]

Blocks = list[types.ContentBlock]
NAMED = schema(("name",), name={"type": "string"})
CONFIRMED = schema(("confirm",), confirm={"type": "boolean"})


async def think(question: str, longest: int = 100) -> str:
    """What the host's model says to that."""
    asked = request_ctx.get()
    said = await asked.session.create_message(
        [types.SamplingMessage(role="user", content=text(question))],
        max_tokens=longest,
        related_request_id=asked.request_id,
    )
    return str(getattr(said.content, "text", ""))


async def roots() -> str:
    """The host's roots, asked for on the stream of the call, as the session's own method does not."""
    asked = request_ctx.get()
    listed = await asked.session.send_request(
        types.ServerRequest(types.ListRootsRequest()),
        types.ListRootsResult,
        metadata=ServerMessageMetadata(related_request_id=asked.request_id),
    )
    return " ".join(str(root.uri) for root in listed.roots)


def takes(**capabilities: Any) -> bool:
    """Whether the host of this session has said that it can do that."""
    return request_ctx.get().session.check_client_capability(types.ClientCapabilities(**capabilities))


# --- what a request may rely on ------------------------------------------------------------------------------------


@tool("test_missing_capability", "Needs a host with a model")
async def _missing(_: dict[str, Any]) -> Blocks:
    return [text(await think("Ready?"))]


@tool("test_streaming_elicitation", "Asks the user while its answer is awaited")
async def _streaming(_: dict[str, Any]) -> Blocks:
    return [text(await ask("What is your name?", NAMED))]


@tool("test_logging_tool", "Logs while it runs")
async def _logs(_: dict[str, Any]) -> Blocks:
    asked = request_ctx.get()
    await asked.session.send_log_message("info", "It runs", related_request_id=asked.request_id)
    return [text("Logged once.")]


@tool("test_trigger_tool_change", "Tells that the list of tools has changed")
async def _tools_changed(_: dict[str, Any]) -> Blocks:
    await request_ctx.get().session.send_tool_list_changed()
    return [text("Told.")]


@tool("test_trigger_prompt_change", "Tells that the list of prompts has changed")
async def _prompts_changed(_: dict[str, Any]) -> Blocks:
    await request_ctx.get().session.send_prompt_list_changed()
    return [text("Told.")]


@tool(
    "test_mirrored_argument",
    "Has an argument that a header repeats",
    schema(("region",), region={"type": "string", "x-mcp-header": "Region"}),
)
async def _mirrored(given: dict[str, Any]) -> Blocks:
    return [text(given["region"])]


# --- what asks before it answers -----------------------------------------------------------------------------------


@tool("test_input_required_result_elicitation", "Asks the user for a name")
async def _name(_: dict[str, Any]) -> Blocks:
    return [text(f"Hello, {await ask('What is your name?', NAMED)}!")]


@tool("test_input_required_result_sampling", "Asks the host's model")
async def _capital(_: dict[str, Any]) -> Blocks:
    return [text(await think("What is the capital of France?"))]


@tool("test_input_required_result_list_roots", "Asks for the host's roots")
async def _roots(_: dict[str, Any]) -> Blocks:
    return [text(await roots())]


@tool("test_input_required_result_request_state", "Asks the user to confirm")
async def _state(_: dict[str, Any]) -> Blocks:
    return [text(f"state-ok: {await ask('Please confirm', schema(('ok',), ok={'type': 'boolean'}))}")]


@tool("test_input_required_result_tampered_state", "Asks the user to confirm")
async def _tampered(_: dict[str, Any]) -> Blocks:
    return [text(await ask("Please confirm", schema(("ok",), ok={"type": "boolean"})))]


@tool("test_input_required_result_multiple_inputs", "Asks the user, the host's model and for the host's roots at once")
async def _several(_: dict[str, Any]) -> Blocks:
    said = await asyncio.gather(ask("What is your name?", NAMED), think("Generate a greeting", 50), roots())
    return [text(" ".join(said))]


@tool("test_input_required_result_multi_round", "Asks the user twice, one after the other")
async def _rounds(_: dict[str, Any]) -> Blocks:
    name = await ask("Step 1: What is your name?", NAMED)
    wanted = schema(("color",), color={"type": "string"})
    return [text(f"{name} {await ask('Step 2: What is your favorite color?', wanted)}")]


@tool("test_input_required_result_capabilities", "Asks what the host can be asked")
async def _able(_: dict[str, Any]) -> Blocks:
    said = []
    if takes(elicitation=types.ElicitationCapability()):
        said.append(await ask("What is your name?", NAMED))
    if takes(sampling=types.SamplingCapability()):
        said.append(await think("What is the capital of France?"))
    return [text(" ".join(said))]


# --- what takes long -----------------------------------------------------------------------------------------------


@tool("greet", "Says hello at once", NAMED)
async def _greet(given: dict[str, Any]) -> Blocks:
    return [text(f"Hello, {given['name']}!")]


@tool("slow_compute", "Takes as long as it is told", schema(seconds={"type": "number"}, label={"type": "string"}))
async def _slow(given: dict[str, Any]) -> Blocks:
    await asyncio.sleep(given.get("seconds", 0))
    return [text(f"{given.get('label')} is computed.")]


@tool("failing_job", "Fails after a second")
async def _failing(_: dict[str, Any]) -> Blocks:
    await asyncio.sleep(1)
    raise ValueError("The job has failed.")


@tool("protocol_error_job", "Is answered with an error of the protocol after a second")
async def _broken(_: dict[str, Any]) -> Blocks:
    await asyncio.sleep(1)
    raise McpError(types.ErrorData(code=types.INTERNAL_ERROR, message="The job has broken."))


@tool("confirm_delete", "Asks the user first", schema(filename={"type": "string"}))
async def _confirm(given: dict[str, Any]) -> Blocks:
    return [text(f"{given.get('filename')}: {await ask('Delete it?', CONFIRMED)}")]


@tool("multi_input", "Asks the user two questions at once")
async def _pair(_: dict[str, Any]) -> Blocks:
    return [text(" ".join(await asyncio.gather(ask("What is your name?", NAMED), ask("Sure?", CONFIRMED))))]


@tool("test_tool_with_task", "Asks the user for a name, then takes a second")
async def _named_task(_: dict[str, Any]) -> Blocks:
    name = await ask("What is your name?", NAMED)
    await asyncio.sleep(1)
    return [text(f"Hello, {name}!")]
