"""A gateway that is given another configuration."""

from typing import Any

from helpers.waiting import bounded
from helpers.whole_gateway import GatewayConfig, Reloaded, WholeGateway

SUCCESS = Reloaded(result="success")
DONE: dict[str, Any] = {"content": []}


async def reloaded(gateway: WholeGateway, config: GatewayConfig) -> Reloaded:
    async with bounded():
        return await gateway.reload(config)


async def echoed(host: Any) -> Any:
    """What a call of `echo` came to."""
    return (await host.call("echo", {"from": "the first"})).result["structuredContent"]["from"]


def refused(answer: Any) -> tuple[int, str]:
    """The code and the reason of a refusal."""
    return answer.code, answer.error["data"]["reason"]
