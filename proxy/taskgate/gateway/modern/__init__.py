"""Hosts of the modern era, which have no sessions: every request stands for itself."""
