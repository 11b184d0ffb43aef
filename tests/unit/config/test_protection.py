"""How much a server gets to do: what may be written together, and what the floors below make of it."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from taskgate.admission.concurrency import BulkheadSettings
from taskgate.config import GatewayConfig
from taskgate.config.model import DEFAULTS, bulkhead_settings, conflicts, upstream_settings
from taskgate.upstream.settings import Breaker, HealthSettings, Retries

Loads = Callable[..., GatewayConfig]

SECOND = timedelta(seconds=1)
EXCHANGE = (
    "credentials: {mode: token_exchange, token_url: 'https://idp.example.com/token', client_id: gw, "
    "client_secret: s, audience: a}"
)


def _with(text: str, keys: str) -> str:
    return text.replace("mcp'}\n", f"mcp', {keys}}}\n")


def test_the_defaults_protect_a_server(loads: Loads, minimal: str) -> None:
    settings = upstream_settings(loads(minimal), "reports")
    assert (settings.retries, settings.breaker, settings.health) == (Retries(), Breaker(), HealthSettings())
    assert bulkhead_settings(loads(minimal), "reports") == BulkheadSettings(
        concurrency=32, queue=256, max_wait=300 * SECOND, share=8, is_shared=False
    )


def test_what_is_written_is_what_a_server_is_made_with(loads: Loads, minimal: str) -> None:
    config = loads(
        _with(
            minimal,
            "retries: {attempts: 4, backoff: 1s, max_backoff: 2s}, concurrency: 3, queue: {size: 0, max_wait: 4s}, "
            "health: {method: tools/list, interval: 5s, timeout: 6s, unhealthy_after: 7, healthy_after: 8}, "
            "circuit_breaker: {failures: 9, window: 10s, open_for: 11s, half_open: 12}",
        )
    )
    settings = upstream_settings(config, "reports")
    assert settings.retries == Retries(attempts=4, backoff=SECOND, max_backoff=2 * SECOND)
    assert settings.health == HealthSettings(
        lists_tools=True, interval=5 * SECOND, timeout=6 * SECOND, unhealthy_after=7, healthy_after=8
    )
    assert settings.breaker == Breaker(failures=9, window=10 * SECOND, open_for=11 * SECOND, half_open=12)
    assert bulkhead_settings(config, "reports") == BulkheadSettings(
        concurrency=3, queue=0, max_wait=4 * SECOND, share=8, is_shared=False
    )


def test_each_can_be_left_out(loads: Loads, minimal: str) -> None:
    config = loads(_with(minimal, "retries: {when: []}, health: null, circuit_breaker: null"))
    settings = upstream_settings(config, "reports")
    assert (settings.retries, settings.breaker, settings.health) == (None, None, None)


def test_a_server_that_takes_tokens_of_callers_alone_is_not_asked_how_it_is(loads: Loads, with_tokens: str) -> None:
    config = loads(_with(with_tokens, EXCHANGE) + "  other: {path: /b, url: 'http://b'}\n")
    assert upstream_settings(config, "reports").health is None
    assert upstream_settings(config, "other").health == HealthSettings()


@pytest.mark.parametrize(
    "upstreams",
    [
        [],
        {"a": None},
        {"a": {"url": 1, "credentials": "token_exchange", "health": 1}},
        {"a": {"url": 1, "retries": []}},
        {"a": {"url": 1, "retries": {"backoff": "soon", "max_backoff": 1}}},
    ],
    ids=str,
)
def test_malformed_parts_contradict_nothing(upstreams: object) -> None:
    assert conflicts({"upstreams": upstreams}, defaults=DEFAULTS) == []
