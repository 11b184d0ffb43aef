"""Lines out of bytes as they come: whole, bounded, and the same however the bytes are cut."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as some

from taskgate.upstream.stdio.pipes import BOM, ENDS, FURTHEST, Cut, LineFraming

PIECES = some.lists(some.sampled_from([b"a", b"bc", b"\n", b"\r\n", b" ", b"d\ne", b"\n\n"]), max_size=30)


def fed(limit: int, *pieces: bytes) -> tuple[list[bytes | Cut], bool]:
    framing = LineFraming(limit)
    lines: list[bytes | Cut] = []
    for piece in pieces:
        lines += framing.feed(piece)
        if framing.is_endless:
            break
    return lines, framing.is_endless


@given(PIECES)
def test_however_it_is_cut_the_lines_are_the_same(pieces: list[bytes]) -> None:
    *lines, _ = b"".join(pieces).split(b"\n")
    assert fed(1000, *pieces) == ([line for line in lines if line.strip()], False)


@given(PIECES, some.integers(1, 8))
def test_of_a_line_that_is_too_long_the_ends_are_told_and_what_is_around_it_is_whole(
    pieces: list[bytes], limit: int
) -> None:
    *whole, _ = b"".join(pieces).split(b"\n")
    lines, is_endless = fed(limit, *pieces)
    if is_endless:
        return
    for line, told in zip([line for line in whole if line.strip() or len(line) > limit], lines, strict=True):
        if len(line) <= limit:
            assert told == line
        else:
            assert isinstance(told, Cut)
            beginning, end = told.ends.split(b"\0")
            assert (end, told.size) == (line, len(line))
            assert line.startswith(beginning)
            assert len(beginning) > limit


@pytest.mark.parametrize("cut", range(4))
def test_a_byte_order_mark_before_the_first_line_is_passed_over(cut: int) -> None:
    said = BOM + b"{}\n"
    assert fed(9, said[:cut], said[cut:]) == ([b"{}"], False)
    assert fed(9, BOM + b"\r\n{}\n") == ([b"{}"], False)


def test_of_several_only_the_first_is_passed_over() -> None:
    assert fed(9, BOM + BOM + b"{}\n" + BOM + b"{}\n") == ([BOM + b"{}", BOM + b"{}"], False)


@pytest.mark.parametrize(("size", "is_too_long"), [(5, False), (6, True)])
def test_a_line_of_the_limit_fits_and_a_byte_more_does_not(size: int, is_too_long: bool) -> None:
    line = b"x" * size
    assert fed(5, b"ok\n" + line + b"\nok\n")[0] == [
        b"ok",
        Cut(line + b"\0" + line, size) if is_too_long else line,
        b"ok",
    ]


@given(some.integers(1, 700), some.integers(1, 700))
def test_of_a_long_line_no_more_than_its_ends_is_kept_however_it_comes(first: int, size: int) -> None:
    line = b"".join(b"%d," % number for number in range(1000))
    framing = LineFraming(2 * ENDS)
    pieces = [line[:first], *(line[at : at + size] for at in range(first, len(line), size))]
    for piece in pieces:
        assert framing.feed(piece) == []
    assert framing.unfinished() == Cut(line[:ENDS] + b"\0", len(line))
    assert framing.feed(b"\n{}\n") == [Cut(line[:ENDS] + b"\0" + line[-ENDS:], len(line)), b"{}"]


def test_of_a_long_line_not_much_is_in_memory() -> None:
    framing = LineFraming(2**16)
    tracemalloc.start()
    try:
        for _ in range(10):
            framing.feed(b"x" * 2**16)
        assert tracemalloc.get_traced_memory()[0] < 2**16
    finally:
        tracemalloc.stop()


def test_a_line_that_goes_on_for_too_long_has_no_end() -> None:
    framing = LineFraming(10)
    assert framing.feed(b"ok\n" + b"x" * 10 * FURTHEST) == [b"ok"]
    assert not framing.is_endless
    assert framing.feed(b"x\nlost\n") == []
    assert framing.is_endless
