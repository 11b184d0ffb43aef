"""The gateway for tests: in this process, in one of its own, or several that share a store."""
