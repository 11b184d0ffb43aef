"""Values that keys refuse: the place and the words, exactly."""

from collections.abc import Callable

import pytest

# --- single keys ------------------------------------------------------------------------------------------------------

Tells = Callable[..., list[str]]
Mistold = Callable[[list[tuple[str, str, str, str]]], list[tuple[str, list[str]]]]
WithKey = Callable[[str, str], str]

_PLACES = ("upstreams.reports.url", "server.public_url")
_LISTENS = ("server.listen", "admin.listen")
_STORED = ("tasks.ttl.default", "tasks.ttl.min", "tasks.ttl.keep")
_TTLS = (*_STORED, "tasks.ttl.max")
_OPEN = (
    "server.read_timeout",
    "server.idle_timeout",
    "server.session_idle",
    "server.sse_keepalive",
    "upstreams.reports.timeouts.connect",
    "upstreams.reports.timeouts.first_byte",
    "upstreams.reports.timeouts.idle",
    "upstreams.reports.timeouts.call",
    "upstreams.reports.timeouts.ceiling",
    "upstreams.reports.retries.backoff",
    "upstreams.reports.restart.backoff",
    "upstreams.reports.pool.idle_timeout",
    "upstreams.reports.health.interval",
    "upstreams.reports.health.timeout",
    "upstreams.reports.circuit_breaker.window",
    "upstreams.reports.circuit_breaker.open_for",
    "upstreams.reports.queue.max_wait",
    "tasks.poll_interval.base",
    "tasks.input_required.max_wait",
    "store.purge_interval",
)
_DRAINS = ("server.drain.delay", "server.drain.timeout")
_DURATIONS = (*_OPEN, *_DRAINS, *_TTLS, "store.sqlite.busy_timeout")
_HELD = ("server.max_body", "tasks.max_result")
_SIZES = (*_HELD, "server.max_header", "store.sqlite.max_size")
_COUNTS = (
    "server.max_json_depth",
    "server.max_streams_per_context",
    "upstreams.reports.retries.attempts",
    "upstreams.reports.health.unhealthy_after",
    "upstreams.reports.circuit_breaker.half_open",
    "upstreams.reports.concurrency",
    "upstreams.reports.processes",
    "tasks.input_required.max_outstanding",
    "limits.concurrency.tasks_per_context",
    "limits.concurrency.sessions_per_context",
)
_SHARES = {
    "tasks.poll_interval.jitter": "must be between 0 and 0.5",
    "tasks.poll_interval.target_utilization": "must be between 0.01 and 1",
    "tasks.early_poll.tolerance": "must be between 0 and 1",
    "tasks.early_poll.reject_above": "must be between 1 and 1000",
}
_SECTIONS = (
    "server",
    "server.tls",
    "server.drain",
    "admin",
    "upstreams",
    "upstreams.reports",
    "upstreams.reports.timeouts",
    "tasks",
    "tasks.ttl",
    "tasks.poll_interval",
    "tasks.early_poll",
    "tasks.input_required",
    "upstreams.reports.retries",
    "upstreams.reports.restart",
    "upstreams.reports.pool",
    "upstreams.reports.queue",
    "limits",
    "limits.concurrency",
    "store",
    "store.sqlite",
    "logging",
)
_LISTS = (
    "server.trusted_proxies",
    "server.allowed_hosts",
    "server.allowed_origins",
    "tasks.upgrade",
    "upstreams.reports.timeouts.tools",
    "upstreams.reports.retries.when",
    "limits.rate",
    "limits.overrides",
)

DURATION = "must be a duration such as 250ms, 30s, 5m, 2h or 7d"
SIZE = "must be a size such as 512B, 64KiB, 4MiB or 4GiB"
TEXT = "must be text, in quotes where it looks like a number, true or null"
ADDRESS = "must be HOST:PORT or [IPV6]:PORT, such as 127.0.0.1:8080"
TROUBLED_ADDRESSES = [
    "8080",
    ":8080",
    "127.0.0.1",
    "'127.0.0.1:'",
    "127.0.0.1:65536",
    "127.0.0.1:-1",
    "::1",
    "'::1:80'",
]
NO_ADDRESSES = [
    "'[::g]:1'",
    "'[127.0.0.1]:1'",
    "127.1:80",
    "256.0.0.1:80",
    "'*:80'",
    "a b:80",
    "null",
    "'[::1]'",
    "-a:1",
]

# What is said, of which keys, about which values.
SCALARS: list[tuple[str, tuple[str, ...], list[str]]] = [
    ("must be 'auto', true or false", ("authorization.only_listed_tools",), ["yes", "'true'"]),
    (DURATION, _DURATIONS, ["1.5s", "-1s", "1 s", "1S", "01s", "1h30m", "s", "''", "yes", "[1s]", "9999999999999s"]),
    (f"needs a unit: {DURATION}", _DURATIONS, ["30", "1.5", "0x1e", "-1"]),
    ("must be at least 1ms", (*_OPEN, *_TTLS), ["0s", "0d"]),
    ("must be at most 365d", (*_OPEN, *_DRAINS), ["366d", "31536001s", "999999999999d"]),
    ("must be at most 7d", _TTLS, ["8d", "10081m"]),
    ("must be at most 1h with auth.mode none", _STORED, ["61m", "24h"]),
    ("must be at most 1h", ("store.sqlite.busy_timeout",), ["61m"]),
    (SIZE, _SIZES, ["4MB", "4mib", "4 MiB", "-1KiB", "1.5MiB", "1kB", "MiB", "null", "{}", "true"]),
    (f"needs a unit: {SIZE}", _SIZES, ["1024", "1e6"]),
    ("must be between 1KiB and 1GiB", _HELD, ["1023B", "0B", "1025MiB"]),
    ("must be between 1KiB and 1MiB", ("server.max_header",), ["1023B", "1025KiB"]),
    ("must be between 1MiB and 1TiB", ("store.sqlite.max_size",), ["1023KiB", "2TiB"]),
    ("must be a whole number", _COUNTS, ["1.0", "true", "'10'", "ten", "null", "1e1", "9999999999999999999", "1_0"]),
    ("must be at least 1", _COUNTS, ["0", "-1"]),
    ("must be at most 256", ("server.max_json_depth",), ["257"]),
    ("must be at least 1000", ("server.max_json_members",), ["999"]),
    ("must be at most 65536", ("server.max_json_members",), ["65537"]),
    ("must be at most 10", ("upstreams.reports.retries.attempts",), ["11"]),
    ("must be at least 0", ("upstreams.reports.queue.size",), ["-1"]),
    ("must be at most 1000000", ("upstreams.reports.queue.size",), ["1000001"]),
    ("must be a number", tuple(_SHARES), ["'0.5'", "true", "null", "half", ".nan", ".inf", "[]"]),
    *((words, (key,), ["-1", "1001"]) for key, words in _SHARES.items()),
    ("must be 'tools/list' or 'ping'", ("upstreams.reports.health.method",), ["initialize", "null"]),
    (
        "must be a mapping of keys to values",
        ("upstreams.reports.health", "upstreams.reports.circuit_breaker"),
        ["[]", "text", "false"],
    ),
    ("must be 'local', 'open' or 'closed'", ("limits.on_store_error",), ["fail", "null"]),
    ("must be 'jsonrpc', 'http' or 'tool_error'", ("limits.reject_as",), ["429", "null"]),
    ("must be the path of a file", ("admin.token_file",), ["''", "1"]),
    ("must be 1", ("version",), ["2", "'1'", "1.0", "true", "null", "[1]"]),
    ("must be 'http', 'sse' or 'stdio'", ("upstreams.reports.transport",), ["streamable-http", "null", "HTTP"]),
    ("must be 'isolated' or 'shared'", ("upstreams.reports.sessions",), ["pooled", "null", "true"]),
    ("must be at most 1000", ("upstreams.reports.processes",), ["1001"]),
    (
        "must be a list of the program and its arguments, such as [python3, -m, some_server]",
        ("upstreams.reports.command",),
        ["npx", "{}", "1", "''"],
    ),
    ("must begin with the name of a program", ("upstreams.reports.command",), ["[]", "['']", "[' ', a]"]),
    ("must be a mapping of keys to values", ("upstreams.reports.env",), ["null", "[A=1]", "A=1"]),
    ("must be the path of a folder", ("upstreams.reports.cwd",), ["''", "1", "[]"]),
    ("must be 'wait' or 'fail'", ("server.drain.running_tasks",), ["Wait", "true", "null"]),
    ("must be 'sqlite', 'redis' or 'memory'", ("store.backend",), ["valkey", "null", "SQLite"]),
    ("must be 'FULL' or 'NORMAL'", ("store.sqlite.synchronous",), ["full", "OFF", "2"]),
    ("must be 'debug', 'info', 'warning' or 'error'", ("logging.level",), ["INFO", "trace", "20"]),
    ("must be 'auto', 'json', 'logfmt' or 'console'", ("logging.format",), ["text", "no", "{}"]),
    ("must be a mapping of keys to values", _SECTIONS, ["null", "[]", "text", "1", "2026-01-02"]),
    ("must not be empty", ("upstreams",), ["{}"]),
    ("must be a list", _LISTS, ["text", "{}", "null"]),
    (ADDRESS, _LISTENS, TROUBLED_ADDRESSES + NO_ADDRESSES),
    (
        "must be an absolute http or https URL, in ASCII and without spaces",
        _PLACES,
        ["ftp://a", "a.example.com", "/mcp", "http://", "'http://a b'", "'http://ä'", "''", r'"http://a\tb"'],
    ),
    (TEXT, _PLACES, ["1", "true", "[]", "0o17"]),
    (TEXT, ("upstreams.reports.path",), ["null", "~", "1.5", "{}"]),
    ("is required with transport http", ("upstreams.reports.url",), ["null", "~"]),
    ("must not have a fragment", _PLACES, ["'http://a/#top'"]),
    (
        "must not hold a user name or password",
        _PLACES,
        ["http://user@a", "http://user:word@a/mcp", "http://@a", r"'http://a@b\c'"],
    ),
    (
        "must name a host, and a port from 1 to 65535 if any",
        _PLACES,
        ["http://:80", "http:///mcp", "http://a:0", "http://a:65536", "http://a:b", "'http://[::g]'", "http://1.2.3"],
    ),
    ("must not have a query", ("server.public_url",), ["https://a/?b", "https://a?"]),
    ("must not have a backslash", ("server.public_url",), [r"'https://a\@b/c'", r"'https://a/\'"]),
    (
        "must be a path such as /reports/mcp: letters, digits and . _ ~ -, no slash at the end",
        ("upstreams.reports.path",),
        ["mcp", "/", "/mcp/", "//mcp", "/a//b", "/a/../b", "/.", "/a b", "/a?b", "/a%2Fb", "/ä", "''", "'/a#b'"],
    ),
    (
        "must not lie under /.well-known, which is reserved",
        ("upstreams.reports.path",),
        ["/.well-known", "/.well-known/mcp"],
    ),
    ("must be the path of a file", ("store.sqlite.path",), ["''", "' '", "1", r'"a\nb"', r'"a\0b"', "[]"]),
    (
        "must be the path of a file; to keep nothing, set store.backend to memory",
        ("store.sqlite.path",),
        ["':memory:'"],
    ),
]

# What is said, where in the list, about which values.
HOST = "must be HOST or HOST:PORT, without scheme or wildcard"
ORIGIN = "must be an origin such as https://app.example.com, without path or wildcard"
LISTS: list[tuple[str, str, list[str]]] = [
    (HOST, "server.allowed_hosts[0]", ["['*']", "['*.a']", "['http://a']", "['a:99999']", "['']", "['a/b']"]),
    (TEXT, "server.allowed_hosts[1]", ["[ok, null]", "[ok, 1]", "[ok, [ok]]"]),
    (
        ORIGIN,
        "server.allowed_origins[0]",
        ["['*']", "['null']", "[a]", "['https://a/']", "['http://*.a']", "['h://u@a']"],
    ),
    (
        "must name a host, and a port from 0 to 65535 if any",
        "server.allowed_origins[0]",
        ["['https://a:65536']", "['https://1.2.3']"],
    ),
    ("is required", "tasks.upgrade[0].mode", ["[{tool: a}]"]),
    ("is required", "tasks.upgrade[0].tool", ["[{mode: auto}]"]),
    ("must be 'sync', 'auto', 'always' or 'required'", "tasks.upgrade[0].mode", ["[{tool: a, mode: never}]"]),
    ("must be a mapping of keys to values", "tasks.upgrade[1]", ["[{tool: a, mode: auto}, b]"]),
    (TEXT, "tasks.upgrade[0].tool", ["[{tool: 1, mode: auto}]", "[{tool: null, mode: auto}]"]),
    ("must not be empty", "tasks.upgrade[0].tool", ["[{tool: '', mode: auto}]"]),
    (
        "must have a ] for every [ (the character [ itself is written [[])",
        "tasks.upgrade[0].tool",
        [
            f"[{{tool: '{glob}', mode: auto}}]"
            for glob in ("[", "[ab*", "get_[ab", "[ab][c", "[]", "[!]", "a[]b", "[!]b", "[!", "[[")
        ],
    ),
    ("must be at most 256 characters", "tasks.upgrade[0].tool", [f"[{{tool: {'a' * 257}, mode: auto}}]"]),
    (
        "must not hold control characters or line ends",
        "tasks.upgrade[0].tool",
        [r'[{tool: "a\nb", mode: auto}]', r'[{tool: "\x1b", mode: auto}]'],
    ),
    ("must be Unicode text", "tasks.upgrade[0].tool", [r'[{tool: "\ud800", mode: auto}]']),
    ("unknown key", "tasks.upgrade[0].grace", ["[{tool: a, mode: auto, grace: 2s}]"]),
    (
        "must be the name of an upstream of this file",
        "tasks.upgrade[1].upstream",
        ["[{tool: a, mode: auto, upstream: reports}, {tool: a, mode: auto, upstream: report}]"],
    ),
]


def _rows() -> list[tuple[str, str, str, str]]:
    scalars = [(key, value, key, words) for words, keys, values in SCALARS for key in keys for value in values]
    listed = [(path.partition("[")[0], value, path, words) for words, path, values in LISTS for value in values]
    return scalars + listed


ROWS = _rows()


@pytest.mark.parametrize("key", dict.fromkeys(key for key, *_ in ROWS))
def test_each_bad_value_of_a_key_is_told_on_its_line_and_nothing_else_is(mistold: Mistold, key: str) -> None:
    assert mistold([row for row in ROWS if row[0] == key]) == []


# --- rules for tasks, rates and overrides -----------------------------------------------------------------------------

# What is said, where in the list, about which values.
RULES: list[tuple[str, str, list[str]]] = [
    (
        "must be true or false",
        "tasks.upgrade[0].hints.readOnlyHint",
        ["[{tool: a, mode: auto, hints: {readOnlyHint: 1}}]"],
    ),
    (
        "must be 'readOnlyHint', 'destructiveHint', 'idempotentHint' or 'openWorldHint'",
        "tasks.upgrade[0].hints.readonly",
        ["[{tool: a, mode: auto, hints: {readonly: true}}]"],
    ),
    ("must be 'fail' or 'rerun'", "tasks.upgrade[0].on_lost", ["[{tool: a, mode: auto, on_lost: retry}]"]),
    ("must be at most 7d", "tasks.upgrade[0].ttl", ["[{tool: a, mode: auto, ttl: 8d}]"]),
    ("must be at least 1", "tasks.upgrade[0].cap", ["[{tool: a, mode: auto, cap: 0}]"]),
    (
        "must be a rate such as 5/s, 10/m or 100/h: a whole number and one unit",
        "limits.rate[0].rate",
        [
            f"[{{name: a, scope: ip, rate: {rate}}}]"
            for rate in ("5", "0/s", "0.5/s", "5/d", "5 / s", "-1/s", "'5/s '", "5/S", "null", "[]")
        ],
    ),
    ("is required", "limits.rate[0].name", ["[{scope: ip, rate: 1/s}]"]),
    ("is required", "limits.rate[0].scope", ["[{name: a, rate: 1/s}]"]),
    ("is required", "limits.rate[0].rate", ["[{name: a, scope: ip}]"]),
    (
        "must be a name of a-z, 0-9, _ and -, at most 64 long, with a letter or digit first",
        "limits.rate[0].name",
        ["[{name: A, scope: ip, rate: 1/s}]", "[{name: '', scope: ip, rate: 1/s}]"],
    ),
    (
        "must be 'ip', 'subject', 'context', 'tenant', 'upstream', 'tool' or 'global'",
        "limits.rate[0].scope",
        ["[{name: a, scope: user, rate: 1/s}]"],
    ),
    (
        "must match a request that hosts can send, such as tools/call, tasks/* or resources/read",
        "limits.rate[0].methods[0]",
        [
            "[{name: a, scope: ip, rate: 1/s, methods: [tools/calls]}]",
            "[{name: a, scope: context, rate: 1/s, methods: [notifications/cancelled]}]",
        ],
    ),
    ("must not be empty", "limits.rate[0].methods", ["[{name: a, scope: ip, rate: 1/s, methods: []}]"]),
    ("must be 'enforce' or 'shadow'", "limits.rate[0].mode", ["[{name: a, scope: ip, rate: 1/s, mode: off}]"]),
    ("must be at least 1", "limits.rate[0].cost", ["[{name: a, scope: ip, rate: 1/s, cost: 0}]"]),
    ("unknown key (did you mean burst?)", "limits.rate[0].bursts", ["[{name: a, scope: ip, rate: 1/s, bursts: 1}]"]),
    ("is required", "limits.overrides[0].match", ["[{rate: {calls: 1/s}}]"]),
    (
        "must be a rate such as 5/s, 10/m or 100/h: a whole number and one unit",
        "limits.overrides[0].rate.calls",
        ["[{match: {}, rate: {calls: fast}}]"],
    ),
    ("unknown key", "limits.overrides[0].concurrency.tasks", ["[{match: {}, concurrency: {tasks: 1}}]"]),
    ("must be 'connect'", "upstreams.reports.retries.when[0]", ["[timeout]"]),
    ("must not hold the same twice", "upstreams.reports.retries.when", ["[connect, connect]"]),
]


@pytest.mark.parametrize(
    ("path", "value", "words"), [(path, value, words) for words, path, values in RULES for value in values]
)
def test_a_bad_value_in_a_rule_is_told_on_its_line_and_nothing_else_is(
    tells: Tells, with_key: WithKey, path: str, value: str, words: str
) -> None:
    key = path.partition("[")[0]
    text = with_key(key, value)
    written = f"{key.rpartition('.')[2]}: {value}"
    [line] = [number for number, each in enumerate(text.splitlines(), 1) if each.lstrip() == written]
    assert tells(text) == [f"f:{line}: {path}: {words}"]
