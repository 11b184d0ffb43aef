"""How progress is read, and what a person is told of it."""

import json
from typing import Any

import pytest

from requirements import covers
from taskgate.protocol.envelope import Notification
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.progress import MAX_MESSAGE, NO_PLACE, Progress, done_of, in_words, read_progress, words_of


def told(**params: Any) -> Notification:
    """A progress notification."""
    message = parse(
        json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).encode(), max_depth=9
    )
    assert isinstance(message, Notification)
    return message


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"progress": 3, "total": 10, "message": "fetching"}, "3/10: fetching"),
        ({"progress": 3, "total": 10}, "3/10"),
        ({"progress": 3}, "3"),
        ({"progress": 3.0, "message": ""}, "3"),
        ({"progress": 0.25, "total": 1.0, "message": "on"}, "0.25/1: on"),
        ({"progress": -1, "message": "back"}, "-1: back"),
        ({"progress": 2**60}, "1.15292e+18"),
        ({"progress": 1, "total": "10", "message": 7}, "1"),
        ({"progress": 1, "total": True, "message": None}, "1"),
        ({"progress": 1, "message": "a\ud800b"}, "1: a?b"),
        ({"progress": NO_PLACE / 2, "message": "on"}, "on"),
        ({"progress": NO_PLACE / 2}, "5e-07"),
        ({"progress": NO_PLACE / 2, "total": 1, "message": "on"}, "5e-07/1: on"),
        ({"progress": NO_PLACE, "message": "on"}, "1e-06: on"),
        ({"progress": 0, "message": "on"}, "0: on"),
    ],
)
def test_progress_is_told_to_people_in_a_few_words(params: dict[str, Any], message: str) -> None:
    progress = read_progress(told(**params))
    assert progress is not None
    assert progress.status_message == message


@pytest.mark.parametrize("value", ["3", None, True, [], {}, 10**400])
def test_what_cannot_be_compared_is_no_progress(value: object) -> None:
    assert read_progress(told(progress=value)) is None
    assert read_progress(told(token=1)) is None


@pytest.mark.parametrize(("length", "kept"), [(MAX_MESSAGE, MAX_MESSAGE), (MAX_MESSAGE + 1, MAX_MESSAGE)])
def test_a_servers_words_are_bounded(length: int, kept: int) -> None:
    progress = read_progress(told(progress=1, message="x" * length))
    assert progress is not None
    assert progress.message is not None
    assert len(progress.message) == kept
    assert progress.message.endswith("…") is (length > kept)


def test_progress_is_a_plain_value() -> None:
    assert Progress(1, None, None) == read_progress(told(progress=1))


@covers("L-PROG-1")
@pytest.mark.parametrize("after", [0.0, 3, 12_345.5])
def test_progress_in_words_grows_with_every_word_and_comes_no_further(after: float) -> None:
    numbers = [done_of(in_words(4, "on", turn, after)) or 0.0 for turn in (1, 2, 3, 999, 1000)]
    assert after < numbers[0]
    assert sorted(set(numbers)) == numbers
    assert numbers[-1] < after + NO_PLACE


def test_progress_in_words_is_told_to_people_in_those_words() -> None:
    found = in_words(4, "half of it", 1)
    assert (found.method, found.params["progressToken"].value) == ("notifications/progress", 4)
    progress = read_progress(found)
    assert progress is not None
    assert progress.status_message == "half of it"
    assert (words_of(found), words_of(told(progress=1, message="half of it"))) == ("half of it", None)
    other = read_progress(in_words("t", "half of it", 2, after=3))
    assert other is not None
    assert other.status_message == "3: half of it"
