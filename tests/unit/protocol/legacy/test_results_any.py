"""Whatever a server of the modern era writes: its host gets JSON with the same values, less what is of that era."""

from hypothesis import given
from hypothesis import strategies as st

from helpers.json_texts import objects, texts, written
from taskgate.domain.versions import LEGACY, Revision
from taskgate.errors import DownstreamError
from taskgate.protocol.dialects import EraCrossing
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.results import answer
from taskgate.protocol.messages import Response

P = "io.modelcontextprotocol/"
KEYS = ["resultType", "ttlMs", "cacheScope", "content", "structuredContent", "messages", "isError", "_meta", "x"]
values = st.one_of(texts, st.sampled_from(['"complete"', "[]", "{}", "7", '[{"type":"audio"}]', "null"]))
metas = st.one_of(values, st.sampled_from([f'{{"{P}serverInfo":{{}},"x":1.50}}', f'{{ "{P}related-task":{{}} }}']))


@st.composite
def results(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from(KEYS), unique=True))
    members = [f'"{name}": {draw(metas if name == "_meta" else values)} ' for name in names]
    return f"{{ {','.join(members)} }}"


@given(
    st.one_of(results(), objects(texts, repeats=False)),
    st.sampled_from(["tools/call", "prompts/get", "resources/read"]),
    st.sampled_from(LEGACY),
)
def test_a_result_keeps_every_value_but_those_of_the_other_era(result: str, method: str, host: Revision) -> None:
    try:
        response = parse(f'{{"jsonrpc":"2.0","id":1,"result":{result}}}'.encode(), max_depth=256)
    except DownstreamError:
        return
    assert isinstance(response, Response)
    told = dict(written(answer("h", response, EraCrossing(method, host))))
    said = dict(written(result))
    if said.get("resultType", "complete") != "complete":
        assert dict(told["error"])["code"] == -32603
        return
    found = dict(told["result"])
    own = {"resultType", "ttlMs", "cacheScope", "_meta", "content", "messages", "structuredContent"}
    assert {key: value for key, value in found.items() if key not in own} == {
        key: value for key, value in said.items() if key not in own
    }
    assert found.keys().isdisjoint({"resultType", "ttlMs", "cacheScope"})
    assert ("content" in found) is (method == "tools/call" or "content" in said)
    assert all(not key.startswith(P) for key, _ in found.get("_meta", []))
