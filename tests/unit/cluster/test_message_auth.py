"""Messages are accepted only with a seal of this deployment, and once (T25)."""

from datetime import timedelta

import pytest

from helpers.manual_clock import ManualClock, SeededEntropy
from taskgate.cluster.bus import is_replica_name
from taskgate.cluster.message_auth import (
    MOST,
    NUMBERED,
    TAG_BYTES,
    WARN_EVERY,
    LoggedSeals,
    ReplayFilter,
    SealKeys,
    SequenceCounter,
    new_replica_name,
)

OLD, NEW, OTHER = b"o" * 32, b"n" * 32, b"x" * 32
TEXT = b'["a",null,"Ended","s"]'


def test_what_was_sealed_is_opened() -> None:
    assert SealKeys(NEW).open(SealKeys(NEW).seal(TEXT)) == TEXT


def test_what_was_sealed_with_the_key_before_is_opened() -> None:
    """A key is replaced on one replica after the other."""
    assert SealKeys(NEW, OLD).open(SealKeys(OLD).seal(TEXT)) == TEXT


@pytest.mark.parametrize("keys", [SealKeys(OTHER), SealKeys(OTHER, OLD)])
def test_what_was_sealed_with_another_key_is_not(keys: SealKeys) -> None:
    assert keys.open(SealKeys(NEW).seal(TEXT)) is None


@pytest.mark.parametrize("place", [0, TAG_BYTES - 1, TAG_BYTES, -1])
def test_what_was_changed_is_not(place: int) -> None:
    sealed = bytearray(SealKeys(NEW).seal(TEXT))
    sealed[place] ^= 1
    assert SealKeys(NEW).open(bytes(sealed)) is None


@pytest.mark.parametrize("sealed", [b"", TEXT, TEXT[:5]])
def test_what_was_never_sealed_is_not(sealed: bytes) -> None:
    assert SealKeys(NEW).open(sealed) is None


def test_without_a_key_everything_is_believed() -> None:
    assert SealKeys().open(SealKeys().seal(TEXT)) == TEXT == SealKeys().seal(TEXT)


def test_a_key_is_never_shown() -> None:
    assert "o" * 8 not in repr(SealKeys(OLD, OLD))


def test_words_that_cannot_be_opened_are_told_once_and_again_an_hour_later(caplog: pytest.LogCaptureFixture) -> None:
    """A gateway with another key is deaf to the others, and nothing else says so."""
    clock = ManualClock()
    ours, foreign = LoggedSeals(SealKeys(NEW), clock.elapsed), SealKeys(OTHER).seal(TEXT)
    for _ in range(3):
        assert ours.open(foreign) is None
    clock.advance(timedelta(seconds=WARN_EVERY - 1))
    assert ours.open(foreign) is None
    warning = "messages from another gateway cannot be decrypted: it uses a different auth.context.key_file"
    assert caplog.messages == [warning]
    clock.advance(timedelta(seconds=1))
    assert ours.open(foreign) is None
    assert caplog.messages == [warning] * 2


def test_words_that_are_opened_are_nothing_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    ours = LoggedSeals(SealKeys(NEW), ManualClock().elapsed)
    assert ours.open(ours.seal(TEXT)) == TEXT
    assert caplog.messages == []


# --- sequence numbers -------------------------------------------------------------------------------------------------


def test_a_number_is_larger_than_the_one_before_though_the_time_goes_back() -> None:
    clock = ManualClock()
    numbering = SequenceCounter(clock.now)
    numbers = [numbering.next(), numbering.next()]
    clock.set_wall(clock.now() - timedelta(days=1))
    numbers.append(numbering.next())
    clock.set_wall(clock.now() + timedelta(days=2))
    numbers += [numbering.next(), numbering.next()]
    assert numbers == sorted(set(numbers))


def test_a_process_that_is_heard_stays_heard_however_its_time_is_set() -> None:
    clock = ManualClock()
    numbering, replays = SequenceCounter(clock.now), ReplayFilter(clock.now)
    assert replays.accept("a", numbering.next())
    clock.set_wall(clock.now() - timedelta(days=1))
    assert replays.accept("a", numbering.next())
    clock.set_wall(clock.now() + timedelta(days=3))
    assert replays.accept("a", numbering.next())


def test_of_so_many_processes_the_last_number_is_remembered_and_no_more() -> None:
    clock = ManualClock()
    numbering, replays = SequenceCounter(clock.now), ReplayFilter(clock.now)
    numbers = [numbering.next() for _ in range(MOST + 1)]
    for place, number in enumerate(numbers):
        assert replays.accept(str(place), number)
    assert not replays.accept(str(MOST), numbers[MOST])
    assert not replays.accept("1", numbers[1])
    clock.advance(timedelta(minutes=5))
    # Forgotten, but too old to be the first word of anybody.
    assert not replays.accept("0", numbers[0])


def test_a_process_that_numbers_its_words_has_a_name_that_tells() -> None:
    name = new_replica_name(SeededEntropy())
    assert is_replica_name(name)
    assert not ReplayFilter(ManualClock().now).accept(name, None)
    assert ReplayFilter(ManualClock().now).accept("0" * 16, None)
    assert name.endswith(NUMBERED)
