"""What operators are told of extensions that do not cross, in both eras; see test_extensions_cross for what does."""

import logging
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from interaction.test_extensions_cross import EVENTS, OURS, between, pairings
from requirements import covers

DENIED = "taskgate_extensions_denied_total"
HOSTS = {"extensions": {"com.example/of-the-host": {}, EVENTS: {}}}


async def counts(gateway: Gateway) -> dict[str, float]:
    """How often each extension was denied."""
    names = (EVENTS, OURS, "_OTHER")
    return {name: await gateway.count(DENIED, upstream="reports", extension=name) for name in names}


@covers("X-EXT-53")
@pairings
async def test_what_either_side_declares_in_vain_is_counted_and_logged_once(
    era: str, serves: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the server `com.example/no`, what is ours and the events, in both their spellings; of the host its own."""
    caplog.set_level(logging.INFO, logger="taskgate.extensions")
    async with between(serves, **{OURS: "deny"}) as (_, gateway):
        host = gateway.host(era=era, capabilities=HOSTS, tasks=False)
        await host.handshake()
        first = await counts(gateway)
        assert first == {EVENTS: 2, OURS: 1, "_OTHER": 2}
        for _ in range(3):
            await host.ask("tools/list")
            await host.ask("tools/call", {"name": "echo", "arguments": {}})
        assert await counts(gateway) == first, "no usual request is a declaration"
        await host.handshake()
        # A host of the modern era declares the same in every request, so that is no news.
        again = {EVENTS: 4, OURS: 2, "_OTHER": 4} if era == "legacy" else {EVENTS: 3, OURS: 2, "_OTHER": 3}
        assert await counts(gateway) == again
    lines = [record for record in caplog.records if record.getMessage() == "a declared extension is not forwarded"]
    told: list[Any] = [(each.__dict__["upstream"], each.__dict__["extension"]) for each in lines]
    assert sorted(told) == [
        ("reports", name) for name in sorted((EVENTS, OURS, "com.example/no", "com.example/of-the-host"))
    ]


@pairings
async def test_an_extension_of_either_side_that_crosses_is_not_counted(era: str, serves: str) -> None:
    async with between(serves, **{"com.example/no": {"eras": ["legacy", "modern"]}, OURS: {"eras": [serves]}}) as (
        _,
        gateway,
    ):
        await gateway.host(era=era, tasks=False).handshake()
        found = await counts(gateway)
    assert found == {EVENTS: 1, OURS: 0 if era == serves else 1, "_OTHER": 0}
