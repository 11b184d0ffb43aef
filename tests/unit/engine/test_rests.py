"""What a record keeps of a round is read by who has the key, of the task it was kept for, and is never too large."""

from base64 import urlsafe_b64encode
from dataclasses import replace

import pytest

from helpers.records import new_record
from taskgate.engine.replicas.seals import WordKeys
from taskgate.engine.rests import MAX_SEALED, UNSEALED, Asked, Rest, Rests
from taskgate.tasks.record import KeptRound, OwnerKey

REST = Rest('"state\\u00e9"', (Asked("a", "elicitation/create", "input-1"), Asked("ä", "roots/list", None)))
KEYED = Rests(WordKeys(b"k" * 32))
TASK = new_record()


def kept(rests: Rests, rest: Rest = REST) -> KeptRound:
    sealed = rests.seal(TASK.owner, TASK.id, rest)
    assert sealed is not None
    return KeptRound(sealed=sealed)


@pytest.mark.parametrize("rests", [KEYED, UNSEALED], ids=["sealed", "without a key"])
@pytest.mark.parametrize("rest", [REST, Rest(None, REST.asked)], ids=["with a state", "without"])
def test_what_was_kept_comes_back(rests: Rests, rest: Rest) -> None:
    assert rests.open(replace(TASK, kept_round=kept(rests, rest))) == rest


def test_what_the_key_before_sealed_is_good() -> None:
    rotated = Rests(WordKeys(b"n" * 32, b"k" * 32))
    assert rotated.open(replace(TASK, kept_round=kept(KEYED))) == REST


def test_where_nothing_is_kept_nothing_rests() -> None:
    assert KEYED.open(TASK) is None


@pytest.mark.parametrize(
    "other", [{"id": "other"}, {"owner": OwnerKey("other", "reports")}], ids=["another task", "another owner"]
)
def test_a_round_is_good_for_its_task_alone(other: dict[str, object]) -> None:
    assert KEYED.open(replace(TASK, kept_round=kept(KEYED), **other)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sealed",
    [
        kept(UNSEALED).sealed,
        kept(Rests(WordKeys(b"o" * 32))).sealed,
        kept(KEYED).sealed[:-4],
        "no base64!",
        "ä",
        "",
    ],
    ids=["by nobody", "by another key", "cut short", "no text of ours", "no ASCII", "nothing"],
)
def test_what_none_of_us_wrote_is_not_believed(sealed: str) -> None:
    assert KEYED.open(replace(TASK, kept_round=KeptRound(sealed=sealed))) is None


@pytest.mark.parametrize("text", [b"null", b"[]", b"{", b"\xff", b'["c","m","t",null,[["a"]]]'])
def test_what_cannot_be_read_is_nothing(text: bytes) -> None:
    assert UNSEALED.open(replace(TASK, kept_round=KeptRound(sealed=urlsafe_b64encode(text).decode()))) is None


@pytest.mark.parametrize("size", [MAX_SEALED, MAX_SEALED * 3 // 4])
def test_a_state_that_is_too_large_is_not_kept(size: int) -> None:
    assert KEYED.seal(TASK.owner, TASK.id, Rest("s" * size, ())) is None
    assert KEYED.seal(TASK.owner, TASK.id, Rest("s" * (size // 2), ())) is not None
