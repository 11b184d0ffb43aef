"""taskgate: tasks for MCP servers that have none."""

__version__ = "0.9.0"
