"""Names and numbers of the protocol: methods, headers, `_meta` keys, error codes, and sets of
them.
"""

from typing import Final

# Methods of the legacy era; the modern one has some of them too.
INITIALIZE: Final = "initialize"
PING: Final = "ping"
TOOLS_CALL: Final = "tools/call"
TOOLS_LIST: Final = "tools/list"
TASKS_GET: Final = "tasks/get"
TASKS_RESULT: Final = "tasks/result"
TASKS_CANCEL: Final = "tasks/cancel"
TASKS_LIST: Final = "tasks/list"

# Methods of the legacy era with an effect until the session ends.
RESOURCES_SUBSCRIBE: Final = "resources/subscribe"
RESOURCES_UNSUBSCRIBE: Final = "resources/unsubscribe"
LOGGING_SET_LEVEL: Final = "logging/setLevel"

RELAYED_METHODS: Final = frozenset(
    {
        TOOLS_CALL,
        TOOLS_LIST,
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        RESOURCES_SUBSCRIBE,
        "resources/templates/list",
        RESOURCES_UNSUBSCRIBE,
        "completion/complete",
        LOGGING_SET_LEVEL,
    }
)
"""Legacy requests that are passed on to servers.

Every legacy revision defines them, so a server without the feature knows how to refuse them.
"""

# Methods of the modern era alone.
SERVER_DISCOVER: Final = "server/discover"
TASKS_UPDATE: Final = "tasks/update"
SUBSCRIPTIONS_LISTEN: Final = "subscriptions/listen"

LIST_METHODS: Final = frozenset({TOOLS_LIST, "prompts/list", "resources/list", "resources/templates/list"})
"""Requests for the lists of a server, in both eras."""

UNJUDGED_METHODS: Final = frozenset({INITIALIZE, SERVER_DISCOVER, PING})
"""Requests that no access rule refuses: with them a host learns what it may do."""

MODERN_TASK_METHODS: Final = frozenset({TASKS_GET, TASKS_UPDATE, TASKS_CANCEL})
"""The methods of the tasks extension."""

MODERN_METHODS: Final = MODERN_TASK_METHODS | {
    SERVER_DISCOVER,
    TOOLS_CALL,
    TOOLS_LIST,
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "completion/complete",
    SUBSCRIPTIONS_LISTEN,
}
"""The requests of the modern era. All others are unknown there, even legacy ones (V-DISC-3)."""

MODERN_RELAYED: Final = MODERN_METHODS - MODERN_TASK_METHODS - {SERVER_DISCOVER, SUBSCRIPTIONS_LISTEN, TOOLS_CALL}
"""Modern requests that a server answers, without `tools/call`."""

ROUND_METHODS: Final = frozenset({TOOLS_CALL, "prompts/get", "resources/read"})
"""Modern requests that can be answered with questions, and are then sent again with answers
(M-MRTR-1).
"""

CACHEABLE_METHODS: Final = MODERN_RELAYED - {"prompts/get", "completion/complete"}
"""Modern methods whose complete results say how long and by whom they may be cached (V-CACHE-1)."""

# Methods that a server calls at its host.
ELICITATION_CREATE: Final = "elicitation/create"
SAMPLING_CREATE: Final = "sampling/createMessage"
ROOTS_LIST: Final = "roots/list"

KNOWN_METHODS: Final = RELAYED_METHODS | {INITIALIZE, PING, TASKS_GET, TASKS_RESULT, TASKS_CANCEL, TASKS_LIST}
"""The legacy requests that the gateway serves."""

METHODS_OF_HOSTS: Final = KNOWN_METHODS | MODERN_METHODS
"""All methods of hosts' requests: a closed set, so they can be metric labels and have rules of
their own.
"""

NOTE_INITIALIZED: Final = "notifications/initialized"
NOTE_CANCELLED: Final = "notifications/cancelled"
NOTE_PROGRESS: Final = "notifications/progress"
NOTE_TASK_STATUS: Final = "notifications/tasks/status"
NOTE_TOOLS_CHANGED: Final = "notifications/tools/list_changed"
NOTE_ROOTS_CHANGED: Final = "notifications/roots/list_changed"
NOTE_MESSAGE: Final = "notifications/message"
NOTE_ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"

# Notifications of the modern era alone.
NOTE_TASKS: Final = "notifications/tasks"
NOTE_SUBSCRIBED: Final = "notifications/subscriptions/acknowledged"

LIST_CHANGES: Final = frozenset({"toolsListChanged", "promptsListChanged", "resourcesListChanged"})
"""The members of a filter of `subscriptions/listen` that stand for changes of a list."""

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
"""Notifications of a server about its session, rather than about one call.

Without `notifications/tasks/status`: the tasks that hosts see are the gateway's own.
"""

HOST_NOTICES: Final = frozenset({NOTE_ROOTS_CHANGED, NOTE_TASK_STATUS})
"""Notifications of a host for its server; those of tasks are about the host's own tasks."""

ERA_NOTICES: Final = (
    RELAYED_NOTICES | HOST_NOTICES | {NOTE_INITIALIZED, NOTE_CANCELLED, NOTE_PROGRESS, NOTE_TASKS, NOTE_SUBSCRIBED}
)
"""The notifications of hosts and of servers that some revision defines."""

# Headers as they are sent; names compare without regard to case.
SESSION_HEADER: Final = "Mcp-Session-Id"
VERSION_HEADER: Final = "MCP-Protocol-Version"
METHOD_HEADER: Final = "Mcp-Method"
NAME_HEADER: Final = "Mcp-Name"
PARAM_HEADER: Final = "Mcp-Param-"
"""The prefix of headers that repeat an argument of a tool."""

PARAM_ANNOTATION: Final = "x-mcp-header"
"""The keyword in a tool's input schema that names the header of an argument, without
`PARAM_HEADER`.
"""

# Keys of `_meta`.
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
IMMEDIATE_RESPONSE: Final = "io.modelcontextprotocol/model-immediate-response"
PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

# Trace keys of `_meta`, named like the HTTP headers (SEP-414), so without a prefix.
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
BAGGAGE: Final = "baggage"

IDEMPOTENCY_KEY: Final = "io.taskgate/idempotency-key"
"""Taskgate's key in the `_meta` of a `tools/call`: two calls with the same value are one."""

GATEWAY: Final = "io.taskgate/gateway"
"""Taskgate's key in the `_meta` of a welcome: the presence and the version of the gateway."""

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The key of the tasks extension in the `extensions` of either side's capabilities."""

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""From the least severe to the most."""

# JSON-RPC error codes.
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

# Codes of the specification, each in one era alone.
SESSION_NOT_FOUND: Final = -32001
RESOURCE_NOT_FOUND: Final = -32002
URL_ELICITATION_REQUIRED: Final = -32042
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

MODERN_ERRORS: Final = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})
"""Codes that only modern servers answer with, by the specification."""

RESERVED_CODES: Final = range(-32099, -32019)
"""Codes that the modern specification reserves."""

REFUSED_BY_USER: Final = -1
"""A sampling request that a person declined."""

# Taskgate's own codes, outside of the range that JSON-RPC and the specification reserve.
TASK_CANCELLED: Final = -32800
"""`tasks/result` of a cancelled task: the specification has no code for it."""
OVER_LIMIT: Final = 429
"""A cap, a rate limit or a queue refused; nothing was stored or called."""
FORBIDDEN: Final = 403
"""The operator's rules refused; no server was called."""
UNAVAILABLE: Final = 503
"""The store, a drain or overload refused; no server was called."""
