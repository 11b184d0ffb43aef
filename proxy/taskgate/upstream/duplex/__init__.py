"""Servers that are spoken to over lines: two-way streams of messages, on which nothing says what belongs to what."""
