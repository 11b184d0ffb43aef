"""The section `metrics`: what it refuses, what it takes, and what metrics are told of it."""

from collections.abc import Callable

from taskgate.config import GatewayConfig
from taskgate.config.model import metrics_config
from taskgate.telemetry.metrics.settings import MetricsConfig, MetricsSettings

Loads = Callable[..., GatewayConfig]

LAG = "taskgate_event_loop_lag_seconds"


def with_tenants(with_tokens: str) -> str:
    """The same with an issuer that names tenants."""
    return with_tokens.replace(
        "issuer: 'https://idp.example.com/'", "issuer: 'https://idp.example.com/', claims: {tenant: org}"
    )


def test_what_is_written_is_what_metrics_are_told(loads: Loads, with_tokens: str) -> None:
    more = (
        "metrics:\n  enabled: false\n  path: /prometheus/v1.0\n  tool_label: false\n  tool_histograms: true\n"
        "  max_tools: 1000\n  tenant_label: true\n  tenants: [acme, umbrella]\n  exemplars: false\n"
        f"  buckets: {{{LAG}: [0.5, 1, 2.5]}}\n"
    )
    assert metrics_config(loads(with_tenants(with_tokens) + more)).settings == MetricsSettings(
        enabled=False,
        path="/prometheus/v1.0",
        tool_label=False,
        tool_histograms=True,
        max_tools=1000,
        tenants=frozenset({"acme", "umbrella"}),
        exemplars=False,
        buckets={LAG: (0.5, 1.0, 2.5)},
    )


def test_without_the_section_everything_is_as_metrics_have_it_anyway(loads: Loads, minimal: str) -> None:
    assert metrics_config(loads(minimal)).settings == MetricsSettings()


def test_metrics_are_told_whether_gateways_share_the_store(loads: Loads) -> None:
    text = (
        "version: 1\nauth: {mode: none, context: {key_file: /k}}\nupstreams: {a: {path: /a, url: 'http://a'}}\n"
        "audit: {enabled: false}\nstore: {backend: redis, redis: {url: 'redis://valkey'}}\n"
    )
    assert metrics_config(loads(text)).settings == MetricsSettings(shares_store=True)


def test_names_and_limits_come_from_the_other_sections(loads: Loads, with_tokens: str) -> None:
    more = (
        "  search: {path: /search, url: 'http://127.0.0.1:2', queue: {size: 0}, extensions: {com.example/b: allow, "
        "com.example/a: {methods: [a/list]}, io.modelcontextprotocol/skills: deny}}\n"
        "  prices: {path: /prices, url: 'https://127.0.0.1:3', credentials: {mode: client_credentials, "
        "token_url: 'https://127.0.0.1:4', client_id: a, client_secret: b}}\n"
        "  time: {path: /time, transport: stdio, command: [mcp-server-time]}\nlimits: {rate: []}\n"
    )
    found = metrics_config(loads(with_tokens + more))
    assert found == MetricsConfig(
        backend="sqlite",
        upstreams={"reports": "reports", "search": "search", "prices": "prices", "time": "time"},
        token_users=("prices",),
        programs=("time",),
        extensions=("com.example/a", "com.example/b", "io.modelcontextprotocol/skills"),
        methods=("a/list",),
        issuers=("corp",),
        policies=(),
        sinks=("file", "stdout"),
        task_limit=1000,
        queue_limits={"reports": 256, "search": 0, "prices": 256, "time": 256},
        store_limit=4 * 2**30,
        audit_queue=10_000,
    )


def test_where_there_is_no_limit_none_is_told(loads: Loads, with_tokens: str) -> None:
    more = "store: {backend: memory}\naudit: {enabled: false}\nlimits: {concurrency: {tasks_global: null}}\n"
    found = metrics_config(loads(with_tokens + more))
    assert (found.backend, found.store_limit, found.audit_queue, found.sinks) == ("memory", None, None, ())
    assert found.task_limit is None
    assert found.policies == ("ip", "auth_failures", "handshake", "calls", "polls", "rest", "bodies")
