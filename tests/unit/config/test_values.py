"""Every key with values that it takes, and what they become."""

from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from taskgate.config import BindAddress, GatewayConfig, effective
from taskgate.config.addresses import read_network
from taskgate.config.sections.server import AdminSection
from taskgate.config.sections.store import SqliteSection

# --- all keys ---------------------------------------------------------------------------------------------------------

Loads = Callable[..., GatewayConfig]
ShortAt = Callable[[GatewayConfig, str], Any]

_DURATIONS = {
    "250ms": timedelta(milliseconds=250),
    "90s": timedelta(seconds=90),
    "5m": timedelta(minutes=5),
    "2h": timedelta(hours=2),
    "7d": timedelta(days=7),
    "1ms": timedelta(milliseconds=1),
    "365d": timedelta(days=365),
}
_DURATION_KEYS = (
    "server.read_timeout",
    "server.idle_timeout",
    "server.session_idle",
    "server.sse_keepalive",
    "server.drain.delay",
    "server.drain.timeout",
    "upstreams.reports.timeouts.connect",
    "upstreams.reports.timeouts.first_byte",
    "upstreams.reports.timeouts.idle",
    "upstreams.reports.timeouts.call",
    "upstreams.reports.health.interval",
    "upstreams.reports.health.timeout",
    "upstreams.reports.circuit_breaker.window",
    "upstreams.reports.circuit_breaker.open_for",
    "upstreams.reports.queue.max_wait",
    "tasks.inline_grace",
    "store.purge_interval",
)

GOOD: list[tuple[str, str, Any]] = [
    *((key, text, value) for key in _DURATION_KEYS for text, value in _DURATIONS.items()),
    *((f"server.drain.{key}", "0s", timedelta()) for key in ("delay", "timeout")),
    ("version", "0x1", 1),
    ("server.listen", "127.0.0.1:0", BindAddress(host="127.0.0.1", port=0)),
    ("server.listen", "127.8.9.10:65535", BindAddress(host="127.8.9.10", port=65535)),
    ("server.listen", "'[::1]:0'", BindAddress(host="::1", port=0)),
    ("server.listen", "'[0:0::1]:8080'", BindAddress(host="::1", port=8080)),
    ("server.listen", "LocalHost:8080", BindAddress(host="localhost", port=8080)),
    ("admin.listen", "'[::1]:0'", BindAddress(host="::1", port=0)),
    ("admin.listen", "localhost:9465", BindAddress(host="localhost", port=9465)),
    ("server.public_url", "https://mcp.example.com/", "https://mcp.example.com"),
    ("server.public_url", "http://mcp.example.com:8443/base", "http://mcp.example.com:8443/base"),
    ("server.public_url", "null", None),
    ("server.max_body", "1KiB", 2**10),
    ("server.max_body", "1GiB", 2**30),
    ("server.max_header", "1MiB", 2**20),
    ("server.max_header", "2048B", 2**11),
    ("server.max_json_depth", "1", 1),
    ("server.max_json_depth", "256", 256),
    ("server.max_json_members", "1000", 1000),
    ("server.max_json_members", "65536", 65536),
    ("server.require_task_name", "true", True),
    (
        "server.allowed_hosts",
        "[MCP.example.com, 'other:8443', '[::0:1]:1']",
        ("mcp.example.com", "other:8443", "[::1]:1"),
    ),
    ("server.allowed_origins", "['https://App.example.com:443']", ("https://app.example.com",)),
    ("server.allowed_origins", "['http://a:8080', 'vscode://host']", ("http://a:8080", "vscode://host")),
    ("server.drain.running_tasks", "fail", "fail"),
    ("upstreams.reports.path", "/a/b.c/d_e~f-0", "/a/b.c/d_e~f-0"),
    ("upstreams.reports.path", "/..a", "/..a"),
    ("upstreams.reports.transport", "http", "http"),
    ("upstreams.reports.url", "HTTPS://x.example.com?key=a@b", "HTTPS://x.example.com?key=a@b"),
    ("upstreams.reports.url", "'http://[::1]:3000/mcp'", "http://[::1]:3000/mcp"),
    ("upstreams.reports.protocol_version", "2025-11-25", "2025-11-25"),
    ("upstreams.reports.protocol_version", "'2026-07-28'", "2026-07-28"),
    ("upstreams.reports.timeouts.idle", "~", None),
    ("upstreams.reports.timeouts.ceiling", "1h", timedelta(hours=1)),
    ("upstreams.reports.timeouts.ceiling", "365d", timedelta(days=365)),
    ("upstreams.reports.timeouts.ceiling", "null", None),
    ("tasks.upgrade", "[]", []),
    (
        "tasks.upgrade",
        "[{tool: a, mode: sync}, {tool: 'b*', mode: always}]",
        [(None, "a", "sync"), (None, "b*", "always")],
    ),
    ("tasks.upgrade", "[{upstream: reports, tool: '?', mode: required}]", [("reports", "?", "required")]),
    ("tasks.upgrade", "[{upstream: null, tool: '*', mode: auto}]", [(None, "*", "auto")]),
    *(
        ("tasks.upgrade", f"[{{tool: '{glob}', mode: auto}}]", [(None, glob, "auto")])
        for glob in ("[ab]*", "a[!b]", "[]]", "[!]]", "[[]x", "[[!]", "[]a][b-d]", "x]")
    ),
    ("tasks.ttl.default", "1m", timedelta(minutes=1)),
    ("tasks.ttl.min", "1ms", timedelta(milliseconds=1)),
    ("tasks.ttl.min", "60m", timedelta(hours=1)),
    ("tasks.ttl.max", "3600s", timedelta(hours=1)),
    ("tasks.ttl.max", "null", timedelta(days=1)),
    ("tasks.inline_grace", "0s", timedelta()),
    ("tasks.max_result", "1024MiB", 2**30),
    ("tasks.poll_interval.base", "500ms", timedelta(milliseconds=500)),
    ("tasks.poll_interval.base", "30s", timedelta(seconds=30)),
    ("tasks.poll_interval.min", "1ms", timedelta(milliseconds=1)),
    ("tasks.poll_interval.max", "365d", timedelta(days=365)),
    ("tasks.poll_interval.jitter", "0", 0.0),
    ("tasks.poll_interval.jitter", "0.5", 0.5),
    ("tasks.poll_interval.target_utilization", "1", 1.0),
    ("tasks.poll_interval.target_utilization", "1e-2", 0.01),
    ("tasks.early_poll.tolerance", "0.0", 0.0),
    ("tasks.early_poll.reject_above", "1", 1.0),
    ("upstreams.reports.retries.when", "[]", ()),
    ("upstreams.reports.retries.attempts", "1", 1),
    ("upstreams.reports.health", "null", None),
    ("upstreams.reports.health.method", "ping", "ping"),
    ("upstreams.reports.circuit_breaker", "null", None),
    ("upstreams.reports.queue.size", "0", 0),
    ("admin.token_file", "/run/secrets/admin", Path("/run/secrets/admin")),
    ("server.max_streams_per_context", "1", 1),
    ("limits.rate", "[]", []),
    ("limits.replace_defaults", "true", True),
    *(("limits.reject_as", each, each) for each in ("jsonrpc", "http", "tool_error")),
    *((f"limits.concurrency.{key}", "null", None) for key in ("tasks_global", "tasks_per_tenant", "kept_global")),
    ("limits.concurrency.kept_per_context", "1KiB", 2**10),
    ("limits.concurrency.tasks_per_context", "1", 1),
    ("limits.concurrency.tasks_per_context", "100000", 100000),
    ("store.backend", "memory", "memory"),
    ("store.sqlite.path", "/var/lib/taskgate/tasks.db", Path("/var/lib/taskgate/tasks.db")),
    ("store.sqlite.path", "null", None),
    ("store.sqlite.synchronous", "NORMAL", "NORMAL"),
    ("store.sqlite.busy_timeout", "0ms", timedelta()),
    ("store.sqlite.busy_timeout", "1h", timedelta(hours=1)),
    ("store.sqlite.max_size", "1MiB", 2**20),
    ("store.sqlite.max_size", "1TiB", 2**40),
    *(("logging.level", level, level) for level in ("debug", "info", "warning", "error")),
    ("logging.access", "true", True),
    *(("logging.format", format, format) for format in ("auto", "json", "logfmt", "console")),
]


@pytest.mark.parametrize(("key", "value", "meant"), GOOD, ids=lambda each: str(each)[:40])
def test_a_good_value_means_what_it_says(
    loads: Loads, with_key: Callable[[str, str], str], short_at: ShortAt, key: str, value: str, meant: Any
) -> None:
    assert short_at(loads(with_key(key, value)), key) == meant


def test_several_upstreams_stand_under_their_names(loads: Loads, minimal: str) -> None:
    config = loads(minimal + "  a-1_b: {path: /a, url: 'http://a'}\n  '0': {path: /b, url: 'http://b'}\n")
    assert {name: section.path for name, section in config.upstreams.items()} == {
        "reports": "/reports/mcp",
        "a-1_b": "/a",
        "0": "/b",
    }


@pytest.mark.parametrize(
    ("written", "is_loopback"),
    [
        (BindAddress(host="127.0.0.1", port=1), True),
        (BindAddress(host="128.0.0.1", port=1), False),
        (BindAddress(host="::1", port=1), True),
        (BindAddress(host="::", port=1), False),
        (BindAddress(host="localhost", port=1), True),
        (BindAddress(host="localhost.example.com", port=1), False),
    ],
    ids=str,
)
def test_only_addresses_of_this_machine_are_loopback(written: BindAddress, is_loopback: bool) -> None:
    assert written.is_loopback is is_loopback


def test_values_that_code_makes_pass_as_they_are() -> None:
    listen, path, timeout = BindAddress(host="::1", port=0), Path("a.db"), timedelta(seconds=7)
    assert AdminSection(listen=listen).listen is listen
    section = SqliteSection(path=path, busy_timeout=timeout)
    assert (section.path, section.busy_timeout) == (path, timeout)


# --- networks ---------------------------------------------------------------------------------------------------------

Tells = Callable[..., list[str]]

NETWORK = "must be a network such as 10.0.0.0/8 or fd00::/8, or one address"
BITS = "must not have bits set behind its prefix: 10.0.0.0/8 is a network, 10.0.0.1 one address"


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("192.0.2.7", "192.0.2.7/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("FD00:0::/8", "fd00::/8"),
        ("::1", "::1/128"),
        ("::/0", "::/0"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:192.0.2.7", "192.0.2.7/32"),
    ],
)
def test_a_network_is_read_and_told_in_one_form(loads: Loads, minimal: str, written: str, canonical: str) -> None:
    config = loads(f"{minimal}server: {{trusted_proxies: ['{written}', 172.16.0.0/12]}}\n")
    assert config.server.trusted_proxies == (ip_network(canonical), ip_network("172.16.0.0/12"))
    assert config.model_dump(mode="json")["server"]["trusted_proxies"] == [canonical, "172.16.0.0/12"]
    assert loads(effective(config)) == config


@pytest.mark.parametrize(
    ("written", "words"),
    [
        *(
            (each, NETWORK)
            for each in (
                "10.0.0.0/33",
                "10.0.0.0/",
                "10.0.0.0/-1",
                "10.0.0.0/255.0.0.0",
                "10.0.0.0/8/8",
                "10.0.0",
                "10.0.0.256",
                "010.0.0.1",
                "'fe80::/10%eth0'",
                "'[::1]'",
                "'::/129'",
                "10.0.0.0/8:80",
                "localhost",
                "''",
                "'*'",
                "10",
                "1.5",
                "true",
                "null",
                "[]",
            )
        ),
        *((each, BITS) for each in ("10.0.0.1/8", "0.0.0.1/0", "'fd00::1/8'", "'::ffff:10.0.0.1/104'")),
    ],
)
def test_anything_else_is_refused_where_it_stands(tells: Tells, minimal: str, written: str, words: str) -> None:
    lines = tells(f"{minimal}server:\n  trusted_proxies:\n    - 10.0.0.0/8\n    - {written}\n")
    assert lines == [f"f:8: server.trusted_proxies[1]: {words}"]


def test_what_was_read_already_is_taken_as_it_is() -> None:
    assert read_network(ip_network("10.0.0.0/8")) == ip_network("10.0.0.0/8")
