"""Keys that are not a name that the gateway reads, but are read as one by decoders that fold case: `refuse_alike`.

The decoder of Go's standard library and those of .NET and Java match names without regard to case, some parsers in C
end a key at NUL. What such a server reads must be what the gateway read. Knows no method's meaning.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from taskgate.errors import MalformedMessage
from taskgate.protocol import vocabulary as words

ENVELOPE_NAMES: Final = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
"""The members of a message."""

PARAMS_NAMES: Final = frozenset(
    {
        *("_meta", "task", "name", "arguments", "uri", "taskId", "cursor", "level", "ref", "argument", "context"),
        *("progressToken", "progress", "total", "message", "requestId", "reason", "mode", "url", "elicitationId"),
        *("protocolVersion", "capabilities", "clientInfo", "notifications", "inputResponses", "requestState"),
        *("filter", "methods", "taskIds", "status", "order", "orderBy", "createdAfter", "createdBefore"),
        *("lastUpdatedAfter", "lastUpdatedBefore", "createdAt", "lastUpdatedAt"),
    }
)
"""The parameters that the gateway reads, or that a server's answer depends on, of any method."""

META_NAMES: Final = frozenset(
    {
        *("progressToken", words.TRACEPARENT, words.TRACESTATE, words.BAGGAGE),
        *(words.RELATED_TASK, words.IMMEDIATE_RESPONSE, words.IDEMPOTENCY_KEY, words.TASKS_EXTENSION),
        *(words.PROTOCOL_VERSION, words.CLIENT_CAPABILITIES, words.CLIENT_INFO, words.SERVER_INFO),
        *(words.LOG_LEVEL, words.SUBSCRIPTION_ID),
    }
)
"""The members of `_meta` that the protocol defines, and ours."""

TASK_NAMES: Final = frozenset({"ttl", "pollInterval"})
"""The members of `task`."""


def refuse_alike(keys: Iterable[str], names: frozenset[str]) -> None:
    """Refuse an object with a key that is none of `names` but folds to one of them. Raises MalformedMessage."""
    folded = _FOLDED.get(names) or {fold(name): name for name in names}
    for key in keys:
        if key not in names and (name := folded.get(fold(key))) is not None:
            raise MalformedMessage(f'A key of the message is not "{name}", but some servers read it as that')


def fold(key: str) -> str:
    """What a key is to a reader who heeds no case: letters folded one by one, and nothing behind NUL.

    Beside capitals these are the letters that fold to one of ASCII: the long s, the sign of Kelvin, and in some
    libraries the two i of Turkish.
    """
    return key.partition("\0")[0].translate(_LETTERS).lower()


_LETTERS: Final = {0x17F: "s", 0x212A: "k", 0x130: "i", 0x131: "i"}
_FOLDED: Final[Mapping[frozenset[str], Mapping[str, str]]] = MappingProxyType(
    {names: {fold(name): name for name in names} for names in (ENVELOPE_NAMES, PARAMS_NAMES, META_NAMES, TASK_NAMES)}
)
