"""A token endpoint is asked through a forward proxy."""

from collections.abc import AsyncIterator

import pytest

from helpers.forward_proxy import ForwardProxy
from helpers.secrets import noted
from helpers.waiting import bounded
from taskgate.clock import SystemClock, SystemEntropy
from taskgate.egress import Egress, read_proxy
from taskgate.errors import UpstreamFailed
from taskgate.upstream.credentials.grants import TokenEndpoint
from taskgate.upstream.settings import GrantKind, GrantSettings

PASSWORD = noted("planted-proxy-pw")


@pytest.fixture
async def proxy() -> AsyncIterator[ForwardProxy]:
    async with ForwardProxy() as proxy:
        yield proxy


def through(proxy: ForwardProxy) -> Egress:
    found = read_proxy(f"http://ann:{PASSWORD}@{proxy.address}")
    return Egress(found, found)


async def test_a_token_endpoint_is_asked_through_the_proxy(proxy: ForwardProxy) -> None:
    url = "https://idp.corp.invalid/token"
    grant = GrantSettings(
        kind=GrantKind.CLIENT_CREDENTIALS, token_url=url, client_id="c", client_secret=noted("s3cret-of")
    )
    endpoint = TokenEndpoint(
        grant,
        upstream="reports",
        connect=10,
        patience=20,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        proxy=through(proxy).proxy_for(url),
    )
    async with bounded():
        with pytest.raises(UpstreamFailed):
            await endpoint.grant(None)
        await endpoint.close()
    # A request without an answer is repeated.
    assert set(proxy.asked) == {"CONNECT idp.corp.invalid:443 HTTP/1.1"}
    assert proxy.credentials != [None]
