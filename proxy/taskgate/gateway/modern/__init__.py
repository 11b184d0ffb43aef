"""Hosts of the stateless era, which have no sessions: every request stands for itself."""
