"""The line of a chunk's size may be as long as all framing: its length must cost nothing."""

import time

import pytest

from taskgate.upstream.wire.chunks import ChunkDecoder

LONG = 2**20
LINES = {"spaces": b" " * LONG, "spaces and an extension": b" " * LONG + b";", "an extension": b";" + b"a" * LONG}


@pytest.mark.parametrize("begun", LINES.values(), ids=LINES)
def test_a_line_that_grows_byte_by_byte_is_not_read_again(begun: bytes) -> None:
    decoder = ChunkDecoder()
    start = time.process_time()
    decoder.feed(b"0" * 64 + begun)
    once = time.process_time() - start
    for _ in range(200):
        assert decoder.feed(begun[-1:]) == b""
    # To read it each time takes fifty times as long as once.
    assert time.process_time() - start < 10 * once
    assert not decoder.is_broken
    assert decoder.feed(b"\r\n\r\n") == b""
    assert decoder.end == 4


@pytest.mark.parametrize(
    ("rest", "is_broken"), [(b"5", True), (b"\r\r", True), (b"\r\nabcde", False), (b"\t;x\r\nabcde", False)]
)
def test_spaces_that_come_in_pieces_part_a_size_from_what_follows(rest: bytes, is_broken: bool) -> None:
    decoder = ChunkDecoder()
    assert decoder.feed(b"5 ") == decoder.feed(b" \t") == b""
    assert decoder.feed(rest) == (b"" if is_broken else b"abcde")
    assert decoder.is_broken is is_broken
