"""The protocol's words: revisions, names, messages, event streams. Pure; no behaviour of ours."""
