"""I/O towards MCP servers. Moves bytes and keeps sessions; what they mean is a dialect's business."""
