"""What a record keeps of a call is read by who has the key, of the task it was kept for, and is never too large."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import replace

import pytest

from helpers.records import new_record
from requirements import covers
from taskgate.cluster.message_auth import SealKeys
from taskgate.domain.record import OwnerKey, SealedCheckpoint
from taskgate.lifecycle.checkpoints import (
    MAX_SEALED,
    UNSEALED,
    AskedQuestion,
    CallCheckpoint,
    CheckpointSeals,
    RoundCheckpoint,
)
from taskgate.upstream.calls import ResumePoint

REST = RoundCheckpoint(
    '"state\\u00e9"', (AskedQuestion("a", "elicitation/create", "input-1"), AskedQuestion("ä", "roots/list", None))
)
FOOTING = CallCheckpoint(
    ResumePoint("s", "2025-11-25", "t", 7, "é"), (AskedQuestion('"a"', "elicitation/create", "input-1"),)
)
KEYED = CheckpointSeals(SealKeys(b"k" * 32))
TASK = new_record()


def kept(checkpoints: CheckpointSeals, rest: RoundCheckpoint | CallCheckpoint = REST) -> SealedCheckpoint:
    sealed = checkpoints.seal(TASK.owner, TASK.id, rest)
    assert sealed is not None
    return SealedCheckpoint(sealed=sealed)


@pytest.mark.parametrize("checkpoints", [KEYED, UNSEALED], ids=["sealed", "without a key"])
@pytest.mark.parametrize(
    "rest",
    [REST, RoundCheckpoint(None, REST.asked), FOOTING, CallCheckpoint(ResumePoint(), ())],
    ids=["with a state", "without", "a foothold", "without any place"],
)
def test_what_was_kept_comes_back(checkpoints: CheckpointSeals, rest: RoundCheckpoint | CallCheckpoint) -> None:
    assert checkpoints.open(replace(TASK, checkpoint=kept(checkpoints, rest))) == rest


def test_what_the_key_before_sealed_is_good() -> None:
    rotated = CheckpointSeals(SealKeys(b"n" * 32, b"k" * 32))
    assert rotated.open(replace(TASK, checkpoint=kept(KEYED))) == REST


def test_where_nothing_is_kept_nothing_rests() -> None:
    assert KEYED.open(TASK) is None


@pytest.mark.parametrize(
    "other", [{"id": "other"}, {"owner": OwnerKey("other", "reports")}], ids=["another task", "another owner"]
)
@pytest.mark.parametrize("rest", [REST, FOOTING], ids=["a round", "a foothold"])
def test_what_is_kept_is_good_for_its_task_alone(
    rest: RoundCheckpoint | CallCheckpoint, other: dict[str, object]
) -> None:
    assert KEYED.open(replace(TASK, checkpoint=kept(KEYED, rest), **other)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sealed",
    [
        kept(UNSEALED).sealed,
        kept(CheckpointSeals(SealKeys(b"o" * 32))).sealed,
        kept(KEYED).sealed[:-4],
        "no base64!",
        "ä",
        "",
    ],
    ids=["by nobody", "by another key", "cut short", "no text of ours", "no ASCII", "nothing"],
)
def test_what_none_of_us_wrote_is_not_believed(sealed: str) -> None:
    assert KEYED.open(replace(TASK, checkpoint=SealedCheckpoint(sealed=sealed))) is None


@pytest.mark.parametrize(
    "text",
    [
        b"null",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'["c","m","t",null,[["a"]]]',
        b'["c","m","t",null]',
        b'["c","m","t",[["s"]]]',
        b'["c","m","t",[[1,2,3,4,5,6],[]]]',
        b'["c","m","t",[[],[["a"]]]]',
    ],
)
def test_what_cannot_be_read_is_nothing(text: bytes) -> None:
    assert UNSEALED.open(replace(TASK, checkpoint=SealedCheckpoint(sealed=urlsafe_b64encode(text).decode()))) is None


@pytest.mark.parametrize("size", [MAX_SEALED, MAX_SEALED * 3 // 4])
def test_what_is_too_large_is_not_kept(size: int) -> None:
    assert KEYED.seal(TASK.owner, TASK.id, CallCheckpoint(ResumePoint(event="e" * size), ())) is None
    assert KEYED.seal(TASK.owner, TASK.id, RoundCheckpoint("s" * size, ())) is None
    assert KEYED.seal(TASK.owner, TASK.id, RoundCheckpoint("s" * (size // 2), ())) is not None


def test_a_checkpoint_of_an_earlier_version_is_read() -> None:
    text = json.dumps([*TASK.owner, TASK.id, FOOTING]).encode()
    signed = urlsafe_b64encode(SealKeys(b"k" * 32).sign(text)).decode()
    assert KEYED.open(replace(TASK, checkpoint=SealedCheckpoint(sealed=signed))) == FOOTING


@covers("T25")
def test_no_text_of_a_checkpoint_can_be_read_in_a_record() -> None:
    place = ResumePoint("session-of-the-server", "2025-11-25", "task-of-the-server", 7, "event-77")
    sealed = urlsafe_b64decode(kept(KEYED, CallCheckpoint(place, FOOTING.asked)).sealed)
    assert not any(text in sealed for text in (b"session", b"task-of", b"event-77", b"elicitation", b"input-1"))


def test_a_checkpoint_is_signed_while_a_replica_of_an_earlier_version_is_alive() -> None:
    may_encrypt = [False]
    seals = CheckpointSeals(SealKeys(b"k" * 32), encrypts=lambda: may_encrypt[0])
    assert b"elicitation" in urlsafe_b64decode(kept(seals).sealed)
    may_encrypt[0] = True
    assert b"elicitation" not in urlsafe_b64decode(kept(seals).sealed)
    assert seals.open(replace(TASK, checkpoint=kept(seals))) == REST


def test_a_checkpoint_of_another_deployment_is_not_believed() -> None:
    other = CheckpointSeals(SealKeys(b"k" * 32, None, "other:"))
    assert KEYED.open(replace(TASK, checkpoint=kept(other))) is None


def test_the_same_checkpoint_is_never_encrypted_alike() -> None:
    assert len({kept(KEYED).sealed for _ in range(100)}) == 100
