"""A state opens for its own request, in its time; to all else, and changed in any way, it is nothing."""

from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from helpers.manual_clock import EPOCH
from taskgate.domain.request_state import (
    MAX_LENGTH,
    MAX_PASS_THROUGH,
    HeldCallState,
    PassThroughState,
    RequestStateKeys,
)
from taskgate.errors import InvalidParams

KEY, OTHER = b"k" * 32, b"o" * 32
KEYS = RequestStateKeys(KEY)
UNTIL = EPOCH + timedelta(minutes=10)
TICK = timedelta(microseconds=1)
HELD, PASSED = HeldCallState("AbCdEfGhIjKl", 3), PassThroughState("the server's own")
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
texts = st.text(max_size=20)
whats = st.builds(HeldCallState, texts, st.integers(0, 2**32 - 1)) | st.builds(
    PassThroughState, st.none() | st.text(max_size=60)
)
WHATS = pytest.mark.parametrize(
    "what", [HELD, HeldCallState("", 0), PASSED, PassThroughState(""), PassThroughState(None)], ids=repr
)


def sealed(what: HeldCallState | PassThroughState = HELD, keys: RequestStateKeys = KEYS, **changes: Any) -> str:
    asked = {"context": "c", "mount": "m", "digest": "d", "until": UNTIL, **changes}
    return keys.seal(what, **asked)


def opened(text: str, keys: RequestStateKeys = KEYS, **changes: Any) -> HeldCallState | PassThroughState:
    asked = {"contexts": ["c"], "mount": "m", "digest": "d", "now": EPOCH, **changes}
    return keys.open(text, **asked)


def refused(text: str, keys: RequestStateKeys = KEYS, **changes: Any) -> bool:
    """Whether it opens nothing, in the one text that is for all of it."""
    try:
        opened(text, keys, **changes)
    except InvalidParams as refusal:
        return str(refusal) == "Invalid requestState"
    return False


@given(what=whats, context=texts, mount=texts, digest=texts, key=st.binary(min_size=1))
def test_a_state_brings_back_what_was_sealed(
    what: HeldCallState | PassThroughState, context: str, mount: str, digest: str, key: bytes
) -> None:
    keys = RequestStateKeys(key)
    state = sealed(what, keys, context=context, mount=mount, digest=digest)
    found = opened(state, keys, contexts=[context], mount=mount, digest=digest)
    assert (type(found), found) == (type(what), what)
    assert set(state) <= set(ALPHABET)


@WHATS
def test_a_kind_comes_back_as_itself(what: HeldCallState | PassThroughState) -> None:
    found = opened(sealed(what))
    assert (type(found), found) == (type(what), what)


def test_no_two_states_are_one() -> None:
    assert sealed() == sealed()
    assert (
        len(
            {
                sealed(what)
                for what in (HELD, HeldCallState(HELD.id, 4), HeldCallState("x", 3), PASSED, PassThroughState(None))
            }
        )
        == 5
    )


def test_a_state_of_an_earlier_build_still_opens() -> None:
    kept = "58FELjnSnjUExeiECcNLsoyocbU_l36Y1_pF_R8-hGUABkdfGhqRsGgAAAADQWJDZEVmR2hJakts"
    assert sealed() == kept
    assert opened(kept) == HELD


# --- whose it is ------------------------------------------------------------------------------------------------------


@given(one=st.tuples(texts, texts, texts), other=st.tuples(texts, texts, texts))
def test_a_state_opens_for_nobody_and_nothing_else(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assume(one != other)
    state = sealed(context=one[0], mount=one[1], digest=one[2])
    assert not refused(state, contexts=[one[0]], mount=one[1], digest=one[2])
    assert refused(state, contexts=[other[0]], mount=other[1], digest=other[2])


@pytest.mark.parametrize(
    "changes",
    [{"contexts": ["C"]}, {"contexts": []}, {"mount": "n"}, {"digest": "e"}, {"mount": "c", "contexts": ["m"]}],
)
def test_it_is_bound_to_its_context_its_mount_and_its_request(changes: dict[str, Any]) -> None:
    assert refused(sealed(), **changes)


@pytest.mark.parametrize("contexts", [["c"], ["b", "c"], ["c", "b"]])
def test_it_may_be_of_any_of_the_contexts_of_its_caller(contexts: list[str]) -> None:
    assert opened(sealed(), contexts=contexts) == HELD


def test_the_parts_that_it_is_bound_to_are_kept_apart() -> None:
    assert refused(sealed(context="c", mount='","m'), contexts=['c","'], mount="m")


# --- until when -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=2))])
def test_a_state_is_good_before_its_time_and_not_from_then_on(zone: timezone) -> None:
    state = sealed(until=UNTIL.astimezone(zone))
    assert opened(state, now=UNTIL - TICK) == HELD
    assert refused(state, now=UNTIL)
    assert refused(state, now=UNTIL + timedelta(days=9))


@pytest.mark.parametrize("until", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_any_time_can_be_kept(until: datetime) -> None:
    assert refused(sealed(until=until)) is (until < EPOCH)


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_state_sealed_with_the_key_before_opens_for_a_while() -> None:
    before = RequestStateKeys(OTHER)
    both = RequestStateKeys(KEY, OTHER)
    assert opened(sealed(keys=before), both) == HELD
    assert opened(sealed(keys=both), KEYS) == HELD
    assert refused(sealed(keys=both), before)
    assert refused(sealed(keys=before), KEYS)


def test_keys_are_not_shown() -> None:
    assert "k" * 5 not in repr(RequestStateKeys(KEY, KEY))


# --- changed in any way -----------------------------------------------------------------------------------------------


@given(st.data())
def test_a_state_with_one_character_changed_opens_nothing(data: st.DataObject) -> None:
    state = sealed()
    place = data.draw(st.integers(0, len(state) - 1))
    other = data.draw(st.sampled_from(ALPHABET.replace(state[place], "")))
    assert refused(state[:place] + other + state[place + 1 :])


@pytest.mark.parametrize("id_", ["i", "id", "id_"])
def test_each_state_has_one_spelling(id_: str) -> None:
    """Bits of the last character that hold nothing, and what base64 passes over, are looked at, too."""
    state = sealed(HeldCallState(id_, 0))
    assert not refused(state)
    assert all(refused(state[:-1] + last) for last in ALPHABET if last != state[-1])
    for other in (state + "=", state + "==", state + "\n", " " + state, state[:9] + "." + state[9:]):
        assert refused(other)


@pytest.mark.parametrize("length", range(len(sealed())))
def test_a_cut_state_opens_nothing(length: int) -> None:
    assert refused(sealed()[:length])


@given(st.text(max_size=400) | st.text(ALPHABET, max_size=400))
def test_garbage_opens_nothing(text: str) -> None:
    assert refused(text)


@pytest.mark.parametrize("text", ["", "A", "AAAAA", "=", "ä", "\ud800", "A" * 43, "A" * 300])
def test_what_cannot_even_be_read_opens_nothing(text: str) -> None:
    assert refused(text)


@given(st.binary(max_size=80))
def test_a_body_without_its_tag_opens_nothing(raw: bytes) -> None:
    assert refused(urlsafe_b64encode(raw).rstrip(b"=").decode())


# --- length -----------------------------------------------------------------------------------------------------------


def test_what_is_longer_than_a_state_may_be_is_not_even_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    def decode(text: str) -> bytes:
        decoded.append(len(text))
        return b""

    monkeypatch.setattr("taskgate.domain.request_state.urlsafe_b64decode", decode)
    assert refused("A" * MAX_LENGTH)
    assert refused("A" * (MAX_LENGTH + 1))
    assert decoded == [MAX_LENGTH + -MAX_LENGTH % 4]


def test_the_longest_state_of_a_server_can_be_passed() -> None:
    longest = PassThroughState("é" * (MAX_PASS_THROUGH // 2))
    assert MAX_PASS_THROUGH == 64 * 1024
    assert len(sealed(longest)) == MAX_LENGTH
    assert opened(sealed(longest)) == longest


def test_what_could_not_be_opened_is_not_sealed() -> None:
    with pytest.raises(ValueError, match="too long"):
        sealed(PassThroughState("x" * (MAX_PASS_THROUGH + 1)))
    with pytest.raises(UnicodeEncodeError):
        sealed(PassThroughState("\ud800"))
