"""Another configuration for a gateway that runs, and what calls and refusals say then."""

from typing import Any

from helpers.gateway.gateway import Reloaded

SUCCESS = Reloaded(result="success")
DONE: dict[str, Any] = {"content": []}


async def echoed(host: Any) -> Any:
    """What a call of `echo` came to."""
    return (await host.call("echo", {"from": "the first"})).result["structuredContent"]["from"]


def refused(answer: Any) -> tuple[int, str]:
    """The code and the reason of a refusal."""
    return answer.code, answer.error["data"]["reason"]
