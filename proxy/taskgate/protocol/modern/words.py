"""What kinds of methods and keys this era has, where `protocol/vocabulary.py` has only their names. Decides nothing."""

from typing import Final

from taskgate.protocol import vocabulary as words

RELAYED: Final = (
    words.MODERN_METHODS
    - words.MODERN_TASK_METHODS
    - {
        words.SERVER_DISCOVER,
        words.SUBSCRIPTIONS_LISTEN,
        words.TOOLS_CALL,
    }
)
"""Requests that a server answers, less `tools/call`."""

IN_ROUNDS: Final = frozenset({words.TOOLS_CALL, "prompts/get", "resources/read"})
"""The requests that may be answered with questions, and are then sent again with the answers (M-MRTR-1)."""

CACHEABLE: Final = RELAYED - {"prompts/get", "completion/complete"}
"""Methods of a server whose complete results say for how long and by whom they may be kept (V-CACHE-1)."""

RESERVED: Final = range(-32099, -32019)
"""Error codes that the specification keeps for itself."""
