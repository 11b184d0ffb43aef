"""What the tools of the gateway cost in the context of a model, in tokens of released models."""

import json
import warnings

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.server import ScriptedServer
from taskgate.protocol.handoff import CANCEL, LIST, WAIT, HandoffTools

with warnings.catch_warnings():
    # It reads its vocabularies by a function that Python 3.11 and 3.12 call deprecated.
    warnings.filterwarnings("ignore", "open_binary is deprecated", DeprecationWarning)
    from bpe_openai import get_encoding

MOST = 400
HANDED_OFF = {"upgrade": [{"tool": "*", "mode": "auto", "handoff": {"after": "45s"}}]}


@pytest.mark.parametrize("vocabulary", ["cl100k_base", "o200k_base"])
async def test_the_two_tools_cost_at_most_400_tokens_as_they_are_listed(vocabulary: str) -> None:
    async with ScriptedServer() as server, serve(configuration({"reports": server.url}, tasks=HANDED_OFF)) as gateway:
        listed = (await (await gateway.greeted()).ask("tools/list")).result["tools"]
    own = [tool for tool in listed if tool["name"] in ("taskgate_wait", "taskgate_cancel")]
    assert len(own) == 2, listed
    tokens = len(get_encoding(vocabulary).encode(json.dumps(own)))
    assert 100 < tokens <= MOST, f"{tokens} tokens: {own}"


@pytest.mark.parametrize("vocabulary", ["cl100k_base", "o200k_base"])
def test_the_list_of_calls_costs_at_most_120_tokens_as_it_is_listed(vocabulary: str) -> None:
    assert len(get_encoding(vocabulary).encode(LIST.listed(reads_only=True, takes_handle=False))) <= 120


@pytest.mark.parametrize("vocabulary", ["cl100k_base", "o200k_base"])
@pytest.mark.parametrize(
    "text",
    [
        "Returns the result of a call that takes long, once it is known. Accessibility, internationalization.",
        "Wartet auf das Ergebnis eines langen Aufrufs, und gibt es zur\u00fcck, sobald es bekannt ist.",
        "\u957f\u65f6\u95f4\u8fd0\u884c\u7684\u5de5\u5177\u8c03\u7528\u7684\u7ed3\u679c",
        "\u30c4\u30fc\u30eb\u306e\u547c\u3073\u51fa\u3057\u306e\u7d50\u679c",
        "\u0412\u043e\u0437\u0432\u0440\u0430\u0449\u0430\u0435\u0442",
    ],
)
def test_texts_of_an_operator_cost_no_more_than_is_estimated(vocabulary: str, text: str) -> None:
    tools = HandoffTools(WAIT._replace(description=text), CANCEL)
    listed = [json.loads(tools.wait.listed(reads_only=True)), json.loads(tools.cancel.listed(reads_only=False))]
    assert len(get_encoding(vocabulary).encode(json.dumps(listed, ensure_ascii=False))) <= tools.tokens
