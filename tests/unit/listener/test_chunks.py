"""The end of a body in chunks is found wherever reads end, and only where it is certain."""

from itertools import pairwise

import pytest
from aiohttp.http_exceptions import TransferEncodingError
from hypothesis import given
from hypothesis import strategies as st

from taskgate.listener.chunks import BYTES_PER_OVERHEAD, MAX_OVERHEAD, ChunkFraming

BODIES = {
    "no chunk": b"0\r\n\r\n",
    "one chunk": b"2\r\n{}\r\n0\r\n\r\n",
    "line ends in chunks": b"7\r\n\r\n0\r\n\r\n\r\nA\r\n0\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n",
    "extensions and zeros": b"0002;a=b\r\n{}\r\n00;c\r\n\r\n",
    "a trailer": b"2\r\n{}\r\n0\r\nX: y\r\n0: 0\r\n\r\n",
}
NEXT = b"0\r\n\r\nPOST / HTTP/1.1\r\n\r\n"


def end_in(pieces: list[bytes]) -> int:
    """How many bytes belong to a body that comes in these pieces."""
    framing, size = ChunkFraming(), 0
    for piece in pieces:
        if framing.is_ended:
            break
        size += framing.find_end(piece, 0)
    assert framing.is_ended
    return size


@given(st.sampled_from(list(BODIES.values())), st.lists(st.integers(0, 80), max_size=5))
def test_the_end_is_found_wherever_reads_end(body: bytes, cuts: list[int]) -> None:
    whole = body + NEXT
    places = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    assert end_in([whole[at:to] for at, to in pairwise(places)]) == len(body)


def test_a_body_may_begin_behind_its_head() -> None:
    head = b"POST / HTTP/1.1\r\n\r\n"
    assert ChunkFraming().find_end(head + BODIES["a trailer"] + NEXT, len(head)) == len(head + BODIES["a trailer"])


@pytest.mark.parametrize(
    "body",
    [
        b"\r\n", b"g\r\n", b"-0\r\n", b"+2\r\n", b"0x2\r\n", b" 2\r\n", b"2 \r\n", b"2_0\r\n", b"2\n", b"2;a\rb\r\n",
        b"2;a\n", b"0\n", b"0\r\n\n", b"0\r\nX: y\n", b"2\r\n{}\n0\r\n\r\n", b"0" * 65 + b"\r\n",
        b"2;" + b"a" * 2**14 + b"\r\n", b"\xd9\xa2\r\n",
    ],
)  # fmt: skip
def test_what_is_no_chunk_is_none(body: bytes) -> None:
    for pieces in ([body], [body[at : at + 1] for at in range(len(body))]):
        with pytest.raises(TransferEncodingError):
            end_in(pieces)


def test_much_may_come_besides_a_body_and_no_more() -> None:
    # A chunk of a byte has five bytes more.
    allowed = MAX_OVERHEAD // 5
    framing = ChunkFraming()
    framing.find_end(b"1\r\nx\r\n" * allowed, 0)
    with pytest.raises(TransferEncodingError):
        framing.find_end(b"1\r\nx\r\n" * 5, 0)
    framing = ChunkFraming()
    size = 8 * BYTES_PER_OVERHEAD
    framing.find_end((b"%x\r\n" % size + b"x" * size + b"\r\n") * (MAX_OVERHEAD // 4), 0)
