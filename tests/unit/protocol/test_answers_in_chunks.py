"""A large answer in ASCII is sent as chunks of the bytes that came: the same text, without a copy."""

import tracemalloc
from collections.abc import Callable

import pytest

from taskgate.domain.versions import Era, Revision
from taskgate.jsontext.large import JsonChunks, MessageText, to_string
from taskgate.protocol.jsonrpc import MANY_BYTES, parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.legacy.results import EraCrossing
from taskgate.protocol.messages import Response
from taskgate.protocol.modern.results import convert_response

INFO = '{"name":"s","version":"1"}'
CROSSING = EraCrossing("tools/call", Revision.R2025_11_25, None)
ENCODERS: list[Callable[[Response], MessageText]] = [
    lambda response: LegacyDownstream("1").answer(7, response),
    lambda response: LegacyDownstream("1").answer('a"', response),
    lambda response: LegacyDownstream("1").answer(7, response, CROSSING),
    lambda response: convert_response(7, "tools/call", response, Era.LEGACY, INFO),
    lambda response: convert_response('a"', "tools/call", response, Era.MODERN, INFO),
]
TASK = '"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"},"a":1}'


def response_with(members: str, text: str = "x" * MANY_BYTES, *, id_last: bool = False) -> Response:
    members = members.replace("TEXT", f'"content":[{{"type":"text","text":"{text}"}}]')
    head, tail = '{ "jsonrpc":"2.0", "id": 123', f',"id":123,"jsonrpc":"2.0"{"}"}\n'
    message = parse(
        f'{{"result":{members}{tail}'.encode() if id_last else f'{head} ,"result":{members}}}'.encode(), max_depth=9
    )
    assert isinstance(message, Response)
    return message


@pytest.mark.parametrize("id_last", [False, True])
@pytest.mark.parametrize(
    "members",
    [
        "{TEXT}",
        '{"isError":true, TEXT }',
        '{TEXT,"resultType":"complete"}',
        '{"resultType":"complete","_meta":{"b":2},TEXT}',
        f"{{{TASK},TEXT}}",
        f'{{TEXT,"structuredContent":[1],{TASK}}}',
    ],
)
@pytest.mark.parametrize("encode", ENCODERS)
def test_chunks_have_the_text_of_an_answer(
    encode: Callable[[Response], MessageText], members: str, *, id_last: bool
) -> None:
    response = response_with(members, id_last=id_last)
    assert response.body is not None
    chunks = encode(response)
    assert isinstance(chunks, JsonChunks)
    assert to_string(chunks) == encode(response._replace(body=None))


@pytest.mark.parametrize("encode", ENCODERS)
def test_other_answers_are_the_text_that_they_were(encode: Callable[[Response], MessageText]) -> None:
    for text in ("x", "\N{SNOWMAN}" * MANY_BYTES):
        response = response_with("{TEXT}", text)
        assert response.body is None
        assert isinstance(encode(response), str)


@pytest.mark.parametrize("encode", ENCODERS)
def test_an_answer_of_a_mebibyte_takes_no_memory_to_write(encode: Callable[[Response], MessageText]) -> None:
    response = response_with("{TEXT}", "x" * 2**20)
    encode(response)
    tracemalloc.start()
    try:
        answer = encode(response)
        pieces = [len(piece) for piece in answer.windows(2**18)] if isinstance(answer, JsonChunks) else []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The first window has the bytes around the id.
    assert peak < 1.1 * 2**18
    assert len(pieces) == 5
