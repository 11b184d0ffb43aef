"""Messages are accepted only with a seal of this deployment, and once (T25)."""

from datetime import timedelta

import pytest

from helpers.manual_clock import ManualClock, SeededEntropy
from taskgate.cluster.bus import is_replica_name
from taskgate.cluster.encryption import MARK, NONCE_BYTES
from taskgate.cluster.message_auth import (
    ENCRYPTED,
    MOST,
    NUMBERED,
    TAG_BYTES,
    WARN_EVERY,
    Address,
    LoggedSeals,
    ReplayFilter,
    SealKeys,
    SequenceCounter,
    is_encrypted,
    new_replica_name,
    reads_encrypted,
)

OLD, NEW, OTHER = b"o" * 32, b"n" * 32, b"x" * 32
TEXT = b'["a",null,"Ended","s"]'


def test_what_was_sealed_is_opened() -> None:
    assert SealKeys(NEW).verified(SealKeys(NEW).sign(TEXT)) == TEXT


def test_what_was_sealed_with_the_key_before_is_opened() -> None:
    """A key is replaced on one replica after the other."""
    assert SealKeys(NEW, OLD).verified(SealKeys(OLD).sign(TEXT)) == TEXT


@pytest.mark.parametrize("keys", [SealKeys(OTHER), SealKeys(OTHER, OLD)])
def test_what_was_sealed_with_another_key_is_not(keys: SealKeys) -> None:
    assert keys.verified(SealKeys(NEW).sign(TEXT)) is None


@pytest.mark.parametrize("place", [0, TAG_BYTES - 1, TAG_BYTES, -1])
def test_what_was_changed_is_not(place: int) -> None:
    sealed = bytearray(SealKeys(NEW).sign(TEXT))
    sealed[place] ^= 1
    assert SealKeys(NEW).verified(bytes(sealed)) is None


@pytest.mark.parametrize("sealed", [b"", TEXT, TEXT[:5]])
def test_what_was_never_sealed_is_not(sealed: bytes) -> None:
    assert SealKeys(NEW).verified(sealed) is None


def test_without_a_key_everything_is_believed() -> None:
    assert SealKeys().verified(SealKeys().sign(TEXT)) == TEXT == SealKeys().sign(TEXT)


def test_a_key_is_never_shown() -> None:
    assert "o" * 8 not in repr(SealKeys(OLD, OLD))


def test_words_that_cannot_be_opened_are_told_once_and_again_an_hour_later(caplog: pytest.LogCaptureFixture) -> None:
    """A gateway with another key is deaf to the others, and nothing else says so."""
    clock = ManualClock()
    ours, foreign = LoggedSeals(SealKeys(NEW), clock.elapsed), SealKeys(OTHER).sign(TEXT)
    for _ in range(3):
        assert ours.verified(foreign) is None
    clock.advance(timedelta(seconds=WARN_EVERY - 1))
    assert ours.verified(foreign) is None
    warning = (
        "messages from another gateway cannot be read: "
        "it uses a different auth.context.key_file or store.redis.key_prefix"
    )
    assert caplog.messages == [warning]
    clock.advance(timedelta(seconds=1))
    assert ours.verified(foreign) is None
    assert caplog.messages == [warning] * 2


def test_words_that_are_opened_are_nothing_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    ours = LoggedSeals(SealKeys(NEW), ManualClock().elapsed)
    assert ours.verified(ours.sign(TEXT)) == TEXT
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
    assert name.endswith(ENCRYPTED)


# --- encrypted messages -----------------------------------------------------------------------------------------------

ADDRESS = Address("a" * 16, "b" * 16, 1_764_000_000_000_000)
KEYS = SealKeys(NEW, None, "taskgate:")


def test_an_encrypted_message_has_no_text_that_can_be_read() -> None:
    sealed = KEYS.encrypt(TEXT, ADDRESS)
    assert is_encrypted(sealed)
    assert KEYS.decrypt(sealed) == (ADDRESS, TEXT)
    assert not any(TEXT[at : at + 4] in sealed for at in range(len(TEXT) - 3))
    assert not is_encrypted(KEYS.sign(TEXT))


def test_a_message_to_all_and_one_of_the_key_before_are_read() -> None:
    to_all = ADDRESS._replace(to=None)
    assert SealKeys(OTHER, NEW, "taskgate:").decrypt(KEYS.encrypt(TEXT, to_all)) == (to_all, TEXT)


@pytest.mark.parametrize(
    "keys", [SealKeys(OTHER, None, "taskgate:"), SealKeys(NEW, None, "other:"), SealKeys(NEW), SealKeys()]
)
def test_another_key_or_deployment_reads_nothing(keys: SealKeys) -> None:
    assert keys.decrypt(KEYS.encrypt(TEXT, ADDRESS)) is None


@pytest.mark.parametrize(
    "other",
    [
        ADDRESS._replace(sender="c" * 16),
        ADDRESS._replace(to="c" * 16),
        ADDRESS._replace(to=None),
        ADDRESS._replace(sequence=ADDRESS.sequence + 1),
    ],
    ids=["sender", "receiver", "all", "number"],
)
def test_a_message_with_another_address_is_refused(other: Address) -> None:
    one, another = KEYS.encrypt(TEXT, ADDRESS), KEYS.encrypt(TEXT, other)
    swapped = another[: one.index(MARK)] + one[one.index(MARK) :]
    assert KEYS.decrypt(swapped) is None


def test_a_message_with_any_byte_changed_or_cut_off_is_refused() -> None:
    sealed = KEYS.encrypt(TEXT, ADDRESS)
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        assert KEYS.decrypt(bytes(changed)) is None
        assert KEYS.decrypt(sealed[:place]) is None


def test_no_two_messages_are_encrypted_alike() -> None:
    boxes = {KEYS.encrypt(TEXT, ADDRESS._replace(sequence=number)).partition(MARK)[2] for number in range(1000)}
    assert len({box[:NONCE_BYTES] for box in boxes}) == len({box[NONCE_BYTES:] for box in boxes}) == 1000


def test_what_was_encrypted_for_a_record_is_read_for_it_alone() -> None:
    sealed = KEYS.encrypt_record(TEXT, b"task", b"n" * NONCE_BYTES)
    assert KEYS.decrypt_record(sealed, b"task") == TEXT
    assert KEYS.decrypt_record(sealed, b"another") is None
    assert SealKeys(NEW, None, "other:").decrypt_record(sealed, b"task") is None
    assert KEYS.decrypt(KEYS.encrypt(TEXT, ADDRESS)[:-1]) is None


def test_all_receivers_must_read_encrypted_messages() -> None:
    new = new_replica_name(SeededEntropy())
    assert reads_encrypted([new])
    assert not reads_encrypted([new, "a" * 12 + NUMBERED])
    assert ReplayFilter(ManualClock().now).accept(new, 2**62)
