"""What the two tools of the gateway cost in the context of a model, in tokens of released models."""

import json
import warnings

import pytest

from helpers.scripted_upstream import ScriptedServer
from helpers.whole_gateway import configuration, running

with warnings.catch_warnings():
    # It reads its vocabularies by a function that Python 3.11 and 3.12 call deprecated.
    warnings.filterwarnings("ignore", "open_binary is deprecated", DeprecationWarning)
    from bpe_openai import get_encoding

MOST = 400
HANDED_OFF = {"upgrade": [{"tool": "*", "mode": "auto", "handoff": {"after": "45s"}}]}


@pytest.mark.parametrize("vocabulary", ["cl100k_base", "o200k_base"])
async def test_the_two_tools_cost_at_most_400_tokens_as_they_are_listed(vocabulary: str) -> None:
    async with ScriptedServer() as server, running(configuration({"reports": server.url}, tasks=HANDED_OFF)) as gateway:
        listed = (await (await gateway.greeted()).ask("tools/list")).result["tools"]
    own = [tool for tool in listed if tool["name"] in ("taskgate_wait", "taskgate_cancel")]
    assert len(own) == 2, listed
    tokens = len(get_encoding(vocabulary).encode(json.dumps(own)))
    assert 100 < tokens <= MOST, f"{tokens} tokens: {own}"
