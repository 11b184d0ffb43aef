"""Words between processes, as they are written and read again."""

import json
from typing import Any

import pytest

from taskgate.cluster.messages import Answered, Cancelled, Ended, Envelope, read, word_of, write

KINDS = {"Ended": Ended, "Cancelled": Cancelled}


def test_a_word_is_read_as_it_was_written() -> None:
    word = Answered("session \u2028", "question-1", '{"result":{"text":"\ud800 \u00e9"}}')
    envelope = read(write(word, sender="a", to="b"))
    assert envelope == Envelope("a", "b", "Answered", [*word])
    assert word_of(envelope, {"Answered": Answered}) == word


@pytest.mark.parametrize("request_id", ["7", 7])
def test_the_type_of_an_id_survives(request_id: str | int) -> None:
    envelope = read(write(Cancelled("s", request_id), sender="a", to=None))
    assert envelope is not None
    assert envelope.to is None
    assert word_of(envelope, KINDS) == Cancelled("s", request_id)
    assert type(word_of(envelope, KINDS)[1]) is type(request_id)  # type: ignore[index]


@pytest.mark.parametrize(
    "written", [[], ["a"], ["a", None], ["a", 1, "Ended", "s"], [1, None, "Ended", "s"], ["a", None, 1, "s"], {}, "a"]
)
def test_what_is_no_word_is_not_read(written: Any) -> None:
    assert read(json.dumps(written).encode()) is None


@pytest.mark.parametrize("text", [b"", b"\xff", b"[1", b"nothing"])
def test_what_is_no_text_of_ours_is_not_read(text: bytes) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope("a", None, "Begun", ["s"]),
        Envelope("a", None, "Ended", []),
        Envelope("a", None, "Ended", ["s", "more"]),
    ],
    ids=["a kind that is not known", "too little", "too much"],
)
def test_a_word_of_another_version_is_passed_over(envelope: Envelope) -> None:
    """Replicas are restarted one after the other: for a while not all of them know the same words."""
    assert word_of(envelope, KINDS) is None
