"""Hosts for tests: one that speaks either era, one connection byte by byte, and event streams as they are sent."""
