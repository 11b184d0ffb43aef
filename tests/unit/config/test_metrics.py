"""The section `metrics`: what it refuses, what it takes, and what metrics are told of it."""

from collections.abc import Callable

import pytest

from taskgate.config import GatewayConfig
from taskgate.config.model import metrics_config
from taskgate.telemetry.metrics.settings import MetricsConfig, MetricsSettings
from taskgate.wiring.reload import restart_needed

Tells = Callable[..., list[str]]
Loads = Callable[..., GatewayConfig]

PATH = "must be a path such as /metrics, of letters, digits and . _ ~ -"
TAKEN = "must not be /livez, /readyz, /healthz, /-, /api or /ui, nor below one of them"
BOUNDS = "must be numbers above 0, each greater than the one before it"
LAG = "taskgate_event_loop_lag_seconds"
REFUSED = [
    *(("enabled", each, "must be true or false") for each in ("1", "'yes'", "null")),
    *(("path", each, PATH) for each in ("metrics", "/", "/metrics/", "//metrics", "/a//b", "/a?b", "/a b", "'/ä'",
                                         "/../a", "/.a", "''", "1", "null", f"/{'a' * 256}")),
    *(("path", each, TAKEN) for each in ("/livez", "/readyz", "/healthz", "/api", "/api/v1", "/ui", "/-/reload", "/-",
                                          "/livez/more")),
    *(("max_tools", each, "must be a whole number") for each in ("1.0", "'1'", "null")),
    ("max_tools", "0", "must be at least 1"),
    ("max_tools", "1001", "must be at most 1000"),
    ("tenants", "acme", "must be a list"),
]  # fmt: skip
BUCKETS_REFUSED = ["[]", "1", "[1, 1]", "[2, 1]", "[0, 1]", "[-1]", "[true]", "['1']", "[.inf]", "[.nan]", "[[1]]",
                   "null", "text"]  # fmt: skip


def with_tenants(with_tokens: str) -> str:
    """The same with an issuer that names tenants."""
    return with_tokens.replace(
        "issuer: 'https://idp.example.com/'", "issuer: 'https://idp.example.com/', claims: {tenant: org}"
    )


@pytest.mark.parametrize(("key", "value", "words"), REFUSED)
def test_a_bad_value_is_refused_where_it_stands(tells: Tells, minimal: str, key: str, value: str, words: str) -> None:
    assert tells(f"{minimal}metrics:\n  {key}: {value}\n") == [f"f:6: metrics.{key}: {words}"]


@pytest.mark.parametrize("value", BUCKETS_REFUSED)
def test_bounds_that_are_none_are_refused(tells: Tells, minimal: str, value: str) -> None:
    text = f"{minimal}metrics:\n  buckets:\n    {LAG}: {value}\n"
    assert tells(text) == [f"f:7: metrics.buckets.{LAG}: {BOUNDS}"]


def test_more_bounds_than_anybody_looks_at_are_refused(tells: Tells, minimal: str) -> None:
    text = f"{minimal}metrics:\n  buckets:\n    {LAG}: {list(range(1, 52))}\n"
    assert tells(text) == [f"f:7: metrics.buckets.{LAG}: must be at most 50 numbers"]


@pytest.mark.parametrize("name", ["taskgate_ready", "taskgate_tasks_started_total", "taskgate_nothing_seconds"])
def test_what_has_no_buckets_is_given_none(tells: Tells, minimal: str, name: str) -> None:
    [told] = tells(f"{minimal}metrics:\n  buckets:\n    {name}: [1]\n")
    assert told.endswith("must be the name of a histogram: taskgate metrics lists them")


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{tenant_label: true}", "tenant_label: must be false unless metrics.tenants names some: all would be _OTHER"),
        ("{tenants: [acme]}", "tenants: must be [] unless metrics.tenant_label is true"),
        ("{tenants: [acme, acme], tenant_label: true}", "tenants: must not hold the same twice"),
    ],
)
def test_keys_that_would_do_nothing_are_refused(tells: Tells, with_tokens: str, written: str, told: str) -> None:
    assert [line.partition("metrics.")[2] for line in tells(f"{with_tenants(with_tokens)}metrics: {written}\n")] == [
        told
    ]


@pytest.mark.parametrize("text", ["minimal", "with_tokens"])
def test_tenants_are_named_only_where_there_are_some(tells: Tells, request: pytest.FixtureRequest, text: str) -> None:
    written = f"{request.getfixturevalue(text)}metrics: {{tenant_label: true, tenants: [acme]}}\n"
    [told] = tells(written)
    assert "metrics.tenant_label: must be false" in told


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


def test_nothing_of_it_waits_for_a_restart(loads: Loads, minimal: str) -> None:
    more = f"metrics: {{enabled: false, path: /m, max_tools: 3, buckets: {{{LAG}: [1]}}}}\n"
    assert restart_needed(loads(minimal), loads(minimal + more)) == ()
