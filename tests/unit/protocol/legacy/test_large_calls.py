"""A large call in ASCII leaves for its server as chunks of the bytes that came: the same text, without a copy."""

import tracemalloc

import pytest

from taskgate.domain.versions import NEWEST_LEGACY, Peer
from taskgate.jsontext.large import JsonChunks, to_string
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.host_requests import CallTool
from taskgate.protocol.jsonrpc import MANY_BYTES, parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Params, Request

HOST = Peer(revision=NEWEST_LEGACY, capabilities={}, info={})


def call_of(members: str, text: str) -> tuple[Request, Params]:
    params = members.replace("TEXT", f'"name":"t", "arguments":{{"text":"{text}"}}')
    message = parse(f'{{"id":5,"method":"tools/call","params":{params},"jsonrpc":"2.0"}}'.encode(), max_depth=9)
    assert isinstance(message, Request)
    call = LegacyDownstream("1").decode(message, HOST, offers_tasks=True, extensions=ExtensionPolicy())
    assert isinstance(call, CallTool)
    return message, call.params


@pytest.mark.parametrize(
    ("members", "in_chunks"),
    [
        ("{ TEXT }", True),
        ('{"_meta":{"progressToken":"a"},TEXT}', True),
        ('{TEXT,"_meta":{"a":1,"progressToken":7}}', True),
        ('{TEXT,"_meta":{"a":1}}', True),
        ('{TEXT,"task":{"ttl":1},"_meta":{"progressToken":7}}', False),
    ],
)
@pytest.mark.parametrize("text", ["x", "x" * MANY_BYTES, "\N{SNOWMAN}" * MANY_BYTES], ids=["small", "ascii", "wide"])
def test_chunks_have_the_text_of_a_call(members: str, text: str, *, in_chunks: bool) -> None:
    upstream, (message, params) = LegacyUpstream("1", ExtensionPolicy()), call_of(members, text)
    sent = upstream.call(12, "tools/call", params)
    assert isinstance(sent, JsonChunks) is (in_chunks and message.body is not None)
    assert (message.body is not None) is (text[1:] != "" and text.isascii())
    assert to_string(sent) == upstream.call(12, "tools/call", Params(params.head, params.tail))


def test_a_call_of_a_mebibyte_takes_no_memory_to_write() -> None:
    upstream, (_, params) = (
        LegacyUpstream("1", ExtensionPolicy()),
        call_of('{TEXT,"_meta":{"progressToken":7}}', "x" * 2**20),
    )
    upstream.call(12, "tools/call", params)
    tracemalloc.start()
    try:
        sent = upstream.call(12, "tools/call", params)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(sent) > 2**20
    assert peak < 4096
