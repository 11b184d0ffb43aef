"""The names are those of the specification, and the gateway's own keep out of its way."""

from requirements import covers
from taskgate.protocol import vocabulary
from taskgate.protocol.vocabulary import CACHEABLE_METHODS, MODERN_RELAYED, RESERVED_CODES, ROUND_METHODS

# --- names ------------------------------------------------------------------------------------------------------------


OWN = {"initialize", "ping", "tasks/get", "tasks/result", "tasks/cancel", "tasks/list"}
CODES = {name: value for name, value in vars(vocabulary).items() if name.isupper() and isinstance(value, int)}


def test_every_method_that_may_be_relayed_is_known() -> None:
    assert vocabulary.KNOWN_METHODS == vocabulary.RELAYED_METHODS | OWN
    assert not vocabulary.RELAYED_METHODS & OWN


def test_tools_are_among_what_is_relayed() -> None:
    assert {vocabulary.TOOLS_CALL, vocabulary.TOOLS_LIST} <= vocabulary.RELAYED_METHODS


def test_the_modern_era_lost_what_a_session_was_for() -> None:
    # V-DISC-3, M-NEG-6.
    gone = {"initialize", "ping", "tasks/result", "tasks/list"}
    gone |= {"logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
    assert gone == vocabulary.KNOWN_METHODS - vocabulary.MODERN_METHODS


def test_the_modern_era_added_three_requests() -> None:
    added = {vocabulary.SERVER_DISCOVER, vocabulary.TASKS_UPDATE, vocabulary.SUBSCRIPTIONS_LISTEN}
    assert added == vocabulary.MODERN_METHODS - vocabulary.KNOWN_METHODS
    assert added == {"server/discover", "tasks/update", "subscriptions/listen"}
    assert {"tasks/get", "tasks/update", "tasks/cancel"} == vocabulary.MODERN_TASK_METHODS


def test_log_levels_stand_in_the_order_of_their_severity() -> None:
    # RFC 5424, the other way round.
    levels = "debug info notice warning error critical alert emergency"
    assert " ".join(vocabulary.LOG_LEVELS) == levels


def test_no_notification_is_a_method_that_waits_for_an_answer() -> None:
    notices = {value for name, value in vars(vocabulary).items() if name.startswith("NOTE_")}
    assert all(name.startswith("notifications/") for name in notices | vocabulary.RELAYED_NOTICES)
    assert not any(name.startswith("notifications/") for name in vocabulary.KNOWN_METHODS)


def test_what_is_about_one_call_is_not_relayed_as_a_notice_of_the_session() -> None:
    of_one_call = {vocabulary.NOTE_CANCELLED, vocabulary.NOTE_PROGRESS}
    assert not of_one_call & (vocabulary.RELAYED_NOTICES | vocabulary.HOST_NOTICES)


def test_no_server_tells_hosts_of_its_own_tasks() -> None:
    # The tasks that a host knows are the gateway's.
    assert vocabulary.NOTE_TASK_STATUS not in vocabulary.RELAYED_NOTICES


def test_what_a_host_tells_its_server_is_no_news_of_a_server() -> None:
    # L-HOST-4.
    assert {"notifications/roots/list_changed", "notifications/tasks/status"} == vocabulary.HOST_NOTICES
    assert not vocabulary.HOST_NOTICES & vocabulary.RELAYED_NOTICES


def test_the_news_that_a_host_gets_of_its_server_are_those_of_the_era() -> None:
    # L-INPUT-9.
    assert {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/message",
        "notifications/elicitation/complete",
    } == vocabulary.RELAYED_NOTICES


def test_what_a_server_asks_is_no_request_of_a_host() -> None:
    # The labels of metrics are a closed set, and a host that sends one of these gets no further than a refusal.
    asked = {vocabulary.ELICITATION_CREATE, vocabulary.SAMPLING_CREATE, vocabulary.ROOTS_LIST}
    assert asked == {"elicitation/create", "sampling/createMessage", "roots/list"}
    assert not asked & vocabulary.KNOWN_METHODS


def test_the_codes_of_json_rpc_and_of_the_specification_are_as_they_say() -> None:
    assert {name: code for name, code in CODES.items() if -32768 <= code <= -32000} == {
        "SESSION_NOT_FOUND": -32001,
        "RESOURCE_NOT_FOUND": -32002,
        "HEADER_MISMATCH": -32020,
        "MISSING_CAPABILITY": -32021,
        "UNSUPPORTED_VERSION": -32022,
        "URL_ELICITATION_REQUIRED": -32042,
        "PARSE_ERROR": -32700,
        "INVALID_REQUEST": -32600,
        "METHOD_NOT_FOUND": -32601,
        "INVALID_PARAMS": -32602,
        "INTERNAL_ERROR": -32603,
    }


def test_our_own_codes_stand_outside_the_reserved_range_and_apart() -> None:
    ours = {name: code for name, code in CODES.items() if not -32768 <= code <= -32000}
    assert ours.pop("REFUSED_BY_USER") == -1, "it is the specification's own"
    assert sorted(ours.values()) == [-32800, 403, 429, 503]


def test_the_keys_of_meta_are_spelt_as_the_specification_spells_them() -> None:
    spelt = {value for value in vars(vocabulary).values() if isinstance(value, str) and value.startswith("io.")}
    spelt -= {vocabulary.IDEMPOTENCY_KEY, vocabulary.GATEWAY}
    assert {key.removeprefix("io.modelcontextprotocol/") for key in spelt} == {
        "related-task",
        "model-immediate-response",
        "protocolVersion",
        "clientCapabilities",
        "clientInfo",
        "serverInfo",
        "logLevel",
        "subscriptionId",
        "tasks",
    }
    assert vocabulary.RELATED_TASK == "io.modelcontextprotocol/related-task"
    assert vocabulary.PROTOCOL_VERSION == "io.modelcontextprotocol/protocolVersion"
    assert vocabulary.TASKS_EXTENSION == "io.modelcontextprotocol/tasks"


def test_the_keys_of_ours_look_like_none_of_the_protocols() -> None:
    assert vocabulary.IDEMPOTENCY_KEY == "io.taskgate/idempotency-key"
    assert vocabulary.GATEWAY == "io.taskgate/gateway"


def test_headers_are_spelt_as_the_specification_spells_them() -> None:
    assert (vocabulary.SESSION_HEADER, vocabulary.VERSION_HEADER) == ("Mcp-Session-Id", "MCP-Protocol-Version")
    assert (vocabulary.METHOD_HEADER, vocabulary.NAME_HEADER) == ("Mcp-Method", "Mcp-Name")
    assert (vocabulary.PARAM_HEADER, vocabulary.PARAM_ANNOTATION) == ("Mcp-Param-", "x-mcp-header")


# --- modern sets ------------------------------------------------------------------------------------------------------


LISTS = {"tools/list", "prompts/list", "resources/list", "resources/templates/list"}


def test_what_servers_answer_is_what_the_era_has_less_what_the_gateway_answers() -> None:
    assert LISTS | {"prompts/get", "resources/read", "completion/complete"} == MODERN_RELAYED


@covers("V-CACHE-1")
def test_lists_and_resources_say_how_long_they_may_be_kept() -> None:
    # But for server/discover, which no server is asked.
    assert LISTS | {"resources/read"} == CACHEABLE_METHODS


@covers("M-MRTR-1")
def test_three_methods_may_be_answered_with_questions() -> None:
    assert {"tools/call", "prompts/get", "resources/read"} == ROUND_METHODS


def test_the_specification_keeps_eighty_codes() -> None:
    assert (min(RESERVED_CODES), max(RESERVED_CODES), len(RESERVED_CODES)) == (-32099, -32020, 80)
