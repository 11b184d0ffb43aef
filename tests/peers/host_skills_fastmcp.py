"""A host on FastMCP 4 that declares the skills extension and speaks 2026-07-28.

The report of `python host_skills_fastmcp.py URL` has every skill and every file.
"""

import asyncio
import base64
import json
import sys
from typing import Any

import mcp_types as types
from fastmcp import Client
from fastmcp.skills import SkillsClientExtension


def bytes_of(block: types.TextResourceContents | types.BlobResourceContents) -> str:
    """The content of a file in base64."""
    if isinstance(block, types.BlobResourceContents):
        return block.blob
    return base64.b64encode(block.text.encode()).decode()


async def told_by(client: Client[Any]) -> dict[str, Any]:
    """Every entry and every file."""
    told: dict[str, Any] = {"entries": {}, "files": {}}
    for listed in await client.list_skills():
        got = await client.get_skill_mcp(listed.uri)
        assert got.skill == listed
        told["entries"][listed.uri] = got.model_dump(mode="json", by_alias=True, exclude={"meta"})
        for file in listed.resources:
            (block,) = await client.read_resource(file.uri)
            told["files"][file.uri] = bytes_of(block)
    return told


async def play(url: str) -> None:
    """Writes the report."""
    async with Client(url, extensions=[SkillsClientExtension()]) as client:
        sys.stdout.write(json.dumps(await told_by(client)) + "\n")


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1]))
