"""Arrays of messages: cut where their elements end, and refused where they are no array, or none that anybody sends."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.protocol.batches import MAX_ELEMENTS, is_array, split

SPACES = st.text(" \t\r\n", max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("body", [b"[]", b" [1]", b"\r\n\t[", b"[{"])
def test_an_array_is_seen_by_its_first_letter(body: bytes) -> None:
    assert is_array(body)


@pytest.mark.parametrize("body", [b"", b"{}", b" {}", b"1", b"\xef\xbb\xbf[]", b"   "])
def test_what_else_there_is_is_none(body: bytes) -> None:
    assert not is_array(body)


@given(st.lists(VALUES, min_size=1, max_size=8), SPACES)
def test_every_element_is_cut_out_as_it_was_written(values: list[object], space: str) -> None:
    written = [json.dumps(value) for value in values]
    body = f"{space}[{space}{f'{space},{space}'.join(written)}{space}]{space}"
    assert split(body.encode(), max_depth=64) == [each.encode() for each in written]


@pytest.mark.parametrize(
    "body",
    [
        b"[",
        b"[1",
        b"[1,",
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b"[1]]",
        b"[1] 2",
        b"[NaN]",
        b"[]x",
        b"{}",
        b"",
        b"[\xff]",
        b"[01]",
    ],
)
def test_what_is_no_array_is_refused(body: bytes) -> None:
    with pytest.raises(UnparsableMessage):
        split(body, max_depth=64)


def test_nesting_is_bounded() -> None:
    assert split(b"[[[1]]]", max_depth=3) == [b"[[1]]"]
    with pytest.raises(UnparsableMessage):
        split(b"[[[1]]]", max_depth=2)


@pytest.mark.parametrize("count", [0, MAX_ELEMENTS + 1])
def test_an_array_of_none_or_of_too_many_is_refused(count: int) -> None:
    with pytest.raises(MalformedMessage):
        split(f"[{','.join('1' * count)}]".encode(), max_depth=64)
    assert len(split(f"[{','.join('1' * MAX_ELEMENTS)}]".encode(), max_depth=64)) == MAX_ELEMENTS
