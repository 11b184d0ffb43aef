"""Documents of issuers come through a forward proxy, and those of foreign hosts from public addresses."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from helpers.forward_proxy import ForwardProxy
from helpers.secrets import noted
from helpers.waiting import bounded
from requirements import covers
from taskgate.auth.fetch import FetchFailed, FetchReason, HttpFetcher
from taskgate.egress import Egress, read_proxy

PASSWORD = noted("planted-proxy-pw")


@pytest.fixture
async def proxy() -> AsyncIterator[ForwardProxy]:
    async with ForwardProxy() as proxy:
        yield proxy


SECOND = timedelta(seconds=20)


def through(proxy: ForwardProxy) -> Egress:
    found = read_proxy(f"http://ann:{PASSWORD}@{proxy.address}")
    return Egress(found, found)


@covers("A-AUTH-17")
@pytest.mark.parametrize(
    ("url", "reason", "is_asked"),
    [
        ("https://idp.corp.invalid/keys", FetchReason.BROKEN, True),
        ("https://10.0.0.1/keys", FetchReason.ADDRESS, False),
        ("https://169.254.169.254/keys", FetchReason.ADDRESS, False),
        ("https://[fd00::1]/keys", FetchReason.ADDRESS, False),
    ],
)
async def test_keys_of_foreign_hosts_are_not_fetched_from_private_addresses_behind_a_proxy(
    proxy: ForwardProxy, url: str, reason: FetchReason, is_asked: bool
) -> None:
    fetch = HttpFetcher(through(proxy))
    async with bounded():
        with pytest.raises(FetchFailed) as failed:
            await fetch.get(url, timeout=SECOND, max_size=1000, only_public=True)
        await fetch.close()
    assert failed.value.reason == reason
    assert (len(proxy.asked) == 1) == is_asked


@covers("A-AUTH-17")
async def test_a_name_that_this_machine_resolves_to_a_private_address_is_not_fetched_by_the_proxy(
    proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        return [(2, 1, 6, "", ("10.0.0.7", port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    fetch = HttpFetcher(through(proxy))
    async with bounded():
        with pytest.raises(FetchFailed) as failed:
            await fetch.get("https://inner.corp.invalid/keys", timeout=SECOND, max_size=1000, only_public=True)
        await fetch.close()
    assert (failed.value.reason, proxy.asked) == (FetchReason.ADDRESS, [])
