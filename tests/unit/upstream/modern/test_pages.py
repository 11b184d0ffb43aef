"""What hosts see of a server's pages of tools: those alone that can be called (H-MOD-5)."""

from helpers.server import ScriptedServer, result
from requirements import covers
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import value_of

ODD = {"name": "odd", "inputSchema": {"properties": {"n": {"type": "number", "x-mcp-header": "N"}}}}


@covers("H-MOD-5")
async def test_a_page_for_hosts_has_no_tool_whose_annotations_are_not_sound(
    server: ScriptedServer, guest: Guest
) -> None:
    server.tools = [{"name": "a", "inputSchema": {}}, ODD]
    page = value_of(await guest.ask("tools/list"))
    assert (page["tools"], page["ttlMs"]) == ([server.tools[0]], 5000)


async def test_only_pages_of_tools_are_looked_through(server: ScriptedServer, guest: Guest) -> None:
    server.script["echo"] = result({"content": [], "tools": [ODD]})
    assert value_of(await guest.call())["tools"] == [ODD]
