"""A server with skills on FastMCP 4, which serves skills in 2026-07-28 alone, and no directories.

`python skills_fastmcp.py FOLDER` serves the skills of that folder on a free port, which its log tells.
"""

import sys

from fastmcp import FastMCP
from fastmcp.server.providers.skills import SkillsDirectoryProvider
from fastmcp.skills.extension import SkillsExtension

server = FastMCP("skilled", version="3.2")
provider = SkillsDirectoryProvider(sys.argv[1], experimental_skills=True)
server.add_provider(provider)
server.add_extension(SkillsExtension(providers=[provider]))

if __name__ == "__main__":
    server.run(transport="http", port=0, show_banner=False)
