"""Only what one of us wrote is believed (T25)."""

from datetime import timedelta

import pytest

from helpers.manual_clock import ManualClock
from taskgate.cluster.seals import TAG_BYTES, TOLD_EVERY, ReportedSeals, WordKeys

OLD, NEW, OTHER = b"o" * 32, b"n" * 32, b"x" * 32
TEXT = b'["a",null,"Ended","s"]'


def test_what_was_sealed_is_opened() -> None:
    assert WordKeys(NEW).open(WordKeys(NEW).seal(TEXT)) == TEXT


def test_what_was_sealed_with_the_key_before_is_opened() -> None:
    """A key is replaced on one replica after the other."""
    assert WordKeys(NEW, OLD).open(WordKeys(OLD).seal(TEXT)) == TEXT


@pytest.mark.parametrize("keys", [WordKeys(OTHER), WordKeys(OTHER, OLD)])
def test_what_was_sealed_with_another_key_is_not(keys: WordKeys) -> None:
    assert keys.open(WordKeys(NEW).seal(TEXT)) is None


@pytest.mark.parametrize("place", [0, TAG_BYTES - 1, TAG_BYTES, -1])
def test_what_was_changed_is_not(place: int) -> None:
    sealed = bytearray(WordKeys(NEW).seal(TEXT))
    sealed[place] ^= 1
    assert WordKeys(NEW).open(bytes(sealed)) is None


@pytest.mark.parametrize("sealed", [b"", TEXT, TEXT[:5]])
def test_what_was_never_sealed_is_not(sealed: bytes) -> None:
    assert WordKeys(NEW).open(sealed) is None


def test_without_a_key_everything_is_believed() -> None:
    assert WordKeys().open(WordKeys().seal(TEXT)) == TEXT == WordKeys().seal(TEXT)


def test_a_key_is_never_shown() -> None:
    assert "o" * 8 not in repr(WordKeys(OLD, OLD))


def test_words_that_cannot_be_opened_are_told_once_and_again_an_hour_later(caplog: pytest.LogCaptureFixture) -> None:
    """A gateway with another key is deaf to the others, and nothing else says so."""
    clock = ManualClock()
    ours, foreign = ReportedSeals(WordKeys(NEW), clock.elapsed), WordKeys(OTHER).seal(TEXT)
    for _ in range(3):
        assert ours.open(foreign) is None
    clock.advance(timedelta(seconds=TOLD_EVERY - 1))
    assert ours.open(foreign) is None
    warning = "messages from another gateway cannot be decrypted: it uses a different auth.context.key_file"
    assert caplog.messages == [warning]
    clock.advance(timedelta(seconds=1))
    assert ours.open(foreign) is None
    assert caplog.messages == [warning] * 2


def test_words_that_are_opened_are_nothing_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    ours = ReportedSeals(WordKeys(NEW), ManualClock().elapsed)
    assert ours.open(ours.seal(TEXT)) == TEXT
    assert caplog.messages == []
