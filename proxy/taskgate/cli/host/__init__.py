"""The host of `taskgate call`: it calls a tool at a gateway, and follows its task."""
