"""What a record keeps of a call is read by who has the key, of the task it was kept for, and is never too large."""

from base64 import urlsafe_b64encode
from dataclasses import replace

import pytest

from helpers.records import new_record
from taskgate.cluster.seals import WordKeys
from taskgate.domain.record import KeptCall, OwnerKey
from taskgate.lifecycle.rests import MAX_SEALED, UNSEALED, Asked, Footing, Rest, Rests
from taskgate.upstream.resting import Foothold

REST = Rest('"state\\u00e9"', (Asked("a", "elicitation/create", "input-1"), Asked("ä", "roots/list", None)))
FOOTING = Footing(Foothold("s", "2025-11-25", "t", 7, "é"), (Asked('"a"', "elicitation/create", "input-1"),))
KEYED = Rests(WordKeys(b"k" * 32))
TASK = new_record()


def kept(rests: Rests, rest: Rest | Footing = REST) -> KeptCall:
    sealed = rests.seal(TASK.owner, TASK.id, rest)
    assert sealed is not None
    return KeptCall(sealed=sealed)


@pytest.mark.parametrize("rests", [KEYED, UNSEALED], ids=["sealed", "without a key"])
@pytest.mark.parametrize(
    "rest",
    [REST, Rest(None, REST.asked), FOOTING, Footing(Foothold(), ())],
    ids=["with a state", "without", "a foothold", "without any place"],
)
def test_what_was_kept_comes_back(rests: Rests, rest: Rest | Footing) -> None:
    assert rests.open(replace(TASK, kept=kept(rests, rest))) == rest


def test_what_the_key_before_sealed_is_good() -> None:
    rotated = Rests(WordKeys(b"n" * 32, b"k" * 32))
    assert rotated.open(replace(TASK, kept=kept(KEYED))) == REST


def test_where_nothing_is_kept_nothing_rests() -> None:
    assert KEYED.open(TASK) is None


@pytest.mark.parametrize(
    "other", [{"id": "other"}, {"owner": OwnerKey("other", "reports")}], ids=["another task", "another owner"]
)
@pytest.mark.parametrize("rest", [REST, FOOTING], ids=["a round", "a foothold"])
def test_what_is_kept_is_good_for_its_task_alone(rest: Rest | Footing, other: dict[str, object]) -> None:
    assert KEYED.open(replace(TASK, kept=kept(KEYED, rest), **other)) is None  # type: ignore[arg-type]


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
    assert KEYED.open(replace(TASK, kept=KeptCall(sealed=sealed))) is None


@pytest.mark.parametrize(
    "text",
    [
        b"null",
        b"[]",
        b"{",
        b"\xff",
        b'["c","m","t",null,[["a"]]]',
        b'["c","m","t",null]',
        b'["c","m","t",[["s"]]]',
        b'["c","m","t",[[1,2,3,4,5,6],[]]]',
        b'["c","m","t",[[],[["a"]]]]',
    ],
)
def test_what_cannot_be_read_is_nothing(text: bytes) -> None:
    assert UNSEALED.open(replace(TASK, kept=KeptCall(sealed=urlsafe_b64encode(text).decode()))) is None


@pytest.mark.parametrize("size", [MAX_SEALED, MAX_SEALED * 3 // 4])
def test_what_is_too_large_is_not_kept(size: int) -> None:
    assert KEYED.seal(TASK.owner, TASK.id, Footing(Foothold(event="e" * size), ())) is None
    assert KEYED.seal(TASK.owner, TASK.id, Rest("s" * size, ())) is None
    assert KEYED.seal(TASK.owner, TASK.id, Rest("s" * (size // 2), ())) is not None
