"""A server of the stateless era whose tools ask before they answer, on the unmodified SDK. It knows nothing of tasks.

It runs in the `mcp-2.3.0` environment: `python modern_questions_server.py` takes a free port, which its log tells.
Names and texts are laid down by the conformance suite's scenarios.
"""

import asyncio
from typing import Annotated, Any

import mcp_types as types
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from pydantic import Field

server = MCPServer("questions")
Outcome = types.CallToolResult | types.InputRequiredResult
SAMPLING = types.ClientCapabilities(sampling=types.SamplingCapability())


def answered(words: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=words)])


def needed(state: str | None = None, **requests: types.InputRequest) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def form(message: str, **properties: Any) -> types.ElicitRequest:
    wanted = {"type": "object", "properties": properties, "required": [*properties]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=wanted))


def thought(question: str, longest: int = 100) -> types.CreateMessageRequest:
    asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=question))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[asked], max_tokens=longest))


NAME = form("What is your name?", name={"type": "string"})
CONFIRM = form("Please confirm", ok={"type": "boolean"})
CAPITAL = thought("What is the capital of France?")


def said(ctx: Context, key: str) -> Any:
    """What the host has answered to that, None where it has not."""
    return (ctx.input_responses or {}).get(key)


def word(ctx: Context, key: str, field: str) -> str | None:
    """What the user has filled in."""
    answer = said(ctx, key)
    return str(answer.content[field]) if isinstance(answer, types.ElicitResult) and answer.content else None


@server.tool(structured_output=False)
async def test_simple_text() -> str:
    """Returns a text."""
    return "This is a simple text response for testing."


@server.tool(structured_output=False)
async def test_missing_capability(ctx: Context) -> str:
    """Needs a host with a model."""
    able = ctx.client_capabilities
    if able is None or able.sampling is None:
        data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=SAMPLING)
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "It takes a model",
            data.model_dump(by_alias=True, exclude_none=True),
        )
    return "There is a model."


@server.tool(structured_output=False)
async def test_streaming_elicitation(ctx: Context) -> Outcome:
    """Asks the user while its answer is awaited."""
    name = word(ctx, "user_name", "name")
    return answered(f"Hello, {name}!") if name else needed(user_name=NAME)


@server.tool(structured_output=False)
async def test_logging_tool(ctx: Context) -> str:
    """Logs while it runs."""
    await ctx.info("It runs")
    return "Logged once."


@server.tool(structured_output=False)
async def test_trigger_tool_change(ctx: Context) -> str:
    """Tells that the list of tools has changed."""
    await ctx.notify_tools_changed()
    return "Told."


@server.tool(structured_output=False)
async def test_trigger_prompt_change(ctx: Context) -> str:
    """Tells that the list of prompts has changed."""
    await ctx.notify_prompts_changed()
    return "Told."


@server.tool(structured_output=False)
async def test_mirrored_argument(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Has an argument that a header repeats."""
    return region


@server.tool(structured_output=False)
async def test_input_required_result_elicitation(ctx: Context) -> Outcome:
    """Asks the user for a name."""
    name = word(ctx, "user_name", "name")
    return answered(f"Hello, {name}!") if name else needed(user_name=NAME)


@server.tool(structured_output=False)
async def test_input_required_result_sampling(ctx: Context) -> Outcome:
    """Asks the host's model."""
    told = said(ctx, "capital_question")
    return answered(told.content.text) if told else needed(capital_question=CAPITAL)


@server.tool(structured_output=False)
async def test_input_required_result_list_roots(ctx: Context) -> Outcome:
    """Asks for the host's roots."""
    told = said(ctx, "client_roots")
    if told is None:
        return needed(client_roots=types.ListRootsRequest())
    return answered(" ".join(str(root.uri) for root in told.roots))


@server.tool(structured_output=False)
async def test_input_required_result_request_state(ctx: Context) -> Outcome:
    """Asks the user to confirm, and checks what it gets back."""
    if said(ctx, "confirm") is None:
        return needed("to confirm", confirm=CONFIRM)
    return answered("state-ok" if ctx.request_state == "to confirm" else "state-lost")


@server.tool(structured_output=False)
async def test_input_required_result_tampered_state(ctx: Context) -> Outcome:
    """Asks the user to confirm."""
    return answered("confirmed") if said(ctx, "confirm") else needed("to confirm", confirm=CONFIRM)


@server.tool(structured_output=False)
async def test_input_required_result_multiple_inputs(ctx: Context) -> Outcome:
    """Asks the user, the host's model and for the host's roots at once."""
    if {"user_name", "greeting", "client_roots"} <= {*(ctx.input_responses or {})}:
        return answered(str(word(ctx, "user_name", "name")))
    greeting = thought("Generate a greeting", 50)
    return needed("all", user_name=NAME, greeting=greeting, client_roots=types.ListRootsRequest())


@server.tool(structured_output=False)
async def test_input_required_result_multi_round(ctx: Context) -> Outcome:
    """Asks the user twice, one after the other."""
    if name := word(ctx, "step1", "name"):
        return needed(name, step2=form("Step 2: What is your favorite color?", color={"type": "string"}))
    if color := word(ctx, "step2", "color"):
        return answered(f"{ctx.request_state} {color}")
    return needed("first", step1=form("Step 1: What is your name?", name={"type": "string"}))


@server.tool(structured_output=False)
async def test_input_required_result_capabilities(ctx: Context) -> Outcome:
    """Asks what the host can be asked."""
    if ctx.input_responses:
        return answered(" ".join(ctx.input_responses))
    able = ctx.client_capabilities
    asked: dict[str, types.InputRequest] = {}
    if able is not None and able.elicitation is not None:
        asked["user_name"] = NAME
    if able is not None and able.sampling is not None:
        asked["capital_question"] = CAPITAL
    return needed(**asked) if asked else answered("There is nothing to ask.")


@server.tool(structured_output=False)
async def test_tool_with_task(ctx: Context) -> Outcome:
    """Asks the user for a name, then takes a second."""
    name = word(ctx, "user_name", "name")
    if name is None:
        return needed(user_name=NAME)
    await asyncio.sleep(1)
    return answered(f"Hello, {name}!")


@server.tool(structured_output=False)
async def ask(ctx: Context, rounds: int = 2) -> Outcome:
    """Asks the user for one word after the other."""
    words = [*(ctx.request_state or "").split(), *([given] if (given := word(ctx, "word", "word")) else [])]
    if len(words) < rounds:
        return needed(" ".join(words), word=form(f"Word {len(words) + 1}?", word={"type": "string"}))
    return answered(" ".join(words))


@server.tool(structured_output=False)
async def everybody(ctx: Context) -> Outcome:
    """Asks the user, the host's model and for the host's roots at once, and tells what they say."""
    told = said(ctx, "roots")
    if told is None:
        asked = form("Word of everybody?", word={"type": "string"})
        return needed(user=asked, model=thought("everybody"), roots=types.ListRootsRequest())
    roots = " ".join(str(root.uri) for root in told.roots)
    return answered(f"{word(ctx, 'user', 'word')} {said(ctx, 'model').content.text} {roots}")


@server.prompt()
async def test_input_required_result_prompt(ctx: Context) -> Any:
    """Asks the user for what it is about."""
    about = word(ctx, "user_context", "context")
    if about is None:
        return needed(user_context=form("What context should the prompt use?", context={"type": "string"}))
    return f"It is about {about}."


@server.resource("test://static-text")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


if __name__ == "__main__":
    server.run(transport="streamable-http", port=0)
