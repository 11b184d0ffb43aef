"""Names and numbers of the protocol: methods, headers, `_meta` keys, error codes. Nothing here decides anything."""

from typing import Final

# Methods that the gateway answers itself.
INITIALIZE: Final = "initialize"
PING: Final = "ping"
TOOLS_CALL: Final = "tools/call"
TOOLS_LIST: Final = "tools/list"
TASKS_GET: Final = "tasks/get"
TASKS_RESULT: Final = "tasks/result"
TASKS_CANCEL: Final = "tasks/cancel"
TASKS_LIST: Final = "tasks/list"

RELAYED_METHODS: Final = frozenset(
    {
        TOOLS_CALL,
        TOOLS_LIST,
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "completion/complete",
        "logging/setLevel",
    }
)
"""Requests that every revision of the initialize era defines, and a server therefore knows how to refuse."""

# Methods that a server asks its host.
ELICITATION_CREATE: Final = "elicitation/create"
SAMPLING_CREATE: Final = "sampling/createMessage"
ROOTS_LIST: Final = "roots/list"

KNOWN_METHODS: Final = RELAYED_METHODS | {INITIALIZE, PING, TASKS_GET, TASKS_RESULT, TASKS_CANCEL, TASKS_LIST}
"""The closed set of method names of a host's requests that may become a metric label."""

NOTE_INITIALIZED: Final = "notifications/initialized"
NOTE_CANCELLED: Final = "notifications/cancelled"
NOTE_PROGRESS: Final = "notifications/progress"
NOTE_TASK_STATUS: Final = "notifications/tasks/status"
NOTE_TOOLS_CHANGED: Final = "notifications/tools/list_changed"
NOTE_ROOTS_CHANGED: Final = "notifications/roots/list_changed"
NOTE_MESSAGE: Final = "notifications/message"
NOTE_ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"

RELAYED_NOTICES: Final = frozenset(
    {
        NOTE_TOOLS_CHANGED,
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        NOTE_MESSAGE,
        NOTE_ELICITATION_COMPLETE,
    }
)
"""Notifications of a server that are about its session rather than about one call.

Never `notifications/tasks/status`: the tasks that hosts know are the gateway's own.
"""

HOST_NOTICES: Final = frozenset({NOTE_ROOTS_CHANGED, NOTE_TASK_STATUS})
"""Notifications of a host that are for its server; those of tasks are about the host's own."""

# Headers, spelt as they are sent; comparison is without regard to case.
SESSION_HEADER: Final = "Mcp-Session-Id"
VERSION_HEADER: Final = "MCP-Protocol-Version"

# Keys of `_meta`.
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
IMMEDIATE_RESPONSE: Final = "io.modelcontextprotocol/model-immediate-response"

# JSON-RPC error codes.
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

REFUSED_BY_USER: Final = -1
"""A sampling request that a person turned down."""

# Ours stand outside the range that JSON-RPC and the specification reserve.
TASK_CANCELLED: Final = -32800
"""`tasks/result` of a cancelled task: there is no result and the specification names none."""
OVER_LIMIT: Final = 429
"""A cap, a rate or a queue refused; nothing was written or called."""
FORBIDDEN: Final = 403
"""The operator's rules refused; no server was called."""
UNAVAILABLE: Final = 503
"""The store, a drain or overload refused; no server was called."""
