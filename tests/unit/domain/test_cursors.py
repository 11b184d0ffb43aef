"""A cursor brings its owner back to one place of one list; to everybody else, and changed in any way, it is nothing."""

from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from helpers.manual_clock import EPOCH
from taskgate.domain.cursors import MAX_LENGTH, CursorKeys
from taskgate.errors import InvalidParams

KEY, OTHER = b"k" * 32, b"o" * 32
KEYS = CursorKeys(KEY)
ID = "AbCdEfGhIjKlMnOpQrStUvWxYz012345"
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
times = st.datetimes(timezones=st.just(UTC))
ids = st.text(max_size=40)
texts = st.text(max_size=20)


def sealed(keys: CursorKeys = KEYS, id: str = ID, context: str = "c", mount: str = "m", listing: str = "") -> str:
    return keys.seal((EPOCH, id), context=context, mount=mount, listing=listing)


def refused(cursor: str, keys: CursorKeys = KEYS, context: str = "c", mount: str = "m", listing: str = "") -> bool:
    """Whether it opens nothing, in the one text that is for all of it."""
    try:
        keys.open(cursor, context=context, mount=mount, listing=listing)
    except InvalidParams as refusal:
        return str(refusal) == "Invalid cursor"
    return False


@given(time=times, id=ids, context=texts, mount=texts, listing=texts, key=st.binary(min_size=1))
def test_a_cursor_brings_its_owner_back(
    time: datetime, id: str, context: str, mount: str, listing: str, key: bytes
) -> None:
    keys = CursorKeys(key)
    cursor = keys.seal((time, id), context=context, mount=mount, listing=listing)
    assert keys.open(cursor, context=context, mount=mount, listing=listing) == (time, id)
    assert set(cursor) <= set(ALPHABET)


@pytest.mark.parametrize(
    "time",
    [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 1, UTC)],
)
def test_any_time_is_kept_to_its_microsecond(time: datetime) -> None:
    place = (time, ID)
    assert KEYS.open(KEYS.seal(place, context="c", mount="m"), context="c", mount="m") == place


def test_a_time_of_another_zone_comes_back_in_utc() -> None:
    there = EPOCH.astimezone(timezone(timedelta(hours=2)))
    time, _ = KEYS.open(KEYS.seal((there, ID), context="c", mount="m"), context="c", mount="m")
    assert (time, time.tzinfo) == (EPOCH, UTC)


def test_a_cursor_is_short_and_the_same_for_the_same_place() -> None:
    assert len(sealed()) == 75
    assert sealed() == sealed()
    assert sealed() != sealed(id=ID[::-1])


def test_a_cursor_of_an_earlier_build_still_opens() -> None:
    kept = "Hr-lwoemmFPrxgwkIg-a7AAGV6qUCfABQWJDZEVmR2hJaktsTW5PcFFyU3RVdld4WXowMTIzNDU"
    place = (datetime(2026, 7, 28, 12, 0, 0, 1, UTC), ID)
    assert KEYS.seal(place, context="c", mount="m", listing="l") == kept
    assert KEYS.open(kept, context="c", mount="m", listing="l") == place


# --- whose it is ------------------------------------------------------------------------------------------------------


@given(
    one=st.tuples(texts, texts, texts),
    other=st.tuples(texts, texts, texts),
)
def test_a_cursor_opens_nothing_of_anybody_else(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assume(one != other)
    cursor = KEYS.seal((EPOCH, ID), context=one[0], mount=one[1], listing=one[2])
    assert refused(cursor, KEYS, *other)


@pytest.mark.parametrize(
    "other", [("d", "m", "l"), ("c", "n", "l"), ("c", "m", "k"), ("m", "c", "l"), ("cm", "", "l"), ("c", 'm","l', "")]
)
def test_context_mount_and_listing_are_each_bound(other: tuple[str, str, str]) -> None:
    assert refused(sealed(context="c", mount="m", listing="l"), KEYS, *other)


def test_a_cursor_of_a_list_with_a_filter_opens_none_without_it() -> None:
    assert refused(sealed(listing="status=working"))
    assert refused(sealed(), listing="status=working")


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_cursor_of_another_key_opens_nothing() -> None:
    assert refused(sealed(CursorKeys(OTHER)))
    assert refused(sealed(CursorKeys(OTHER)), CursorKeys(KEY, b"third"))


def test_a_cursor_of_the_key_that_is_being_replaced_still_opens_and_new_ones_are_of_the_new_key() -> None:
    both = CursorKeys(OTHER, KEY)
    assert both.open(sealed(), context="c", mount="m") == (EPOCH, ID)
    assert sealed(both) == sealed(CursorKeys(OTHER))


def test_no_key_is_shown() -> None:
    assert repr(CursorKeys(KEY, OTHER)) == "CursorKeys()"


# --- what was not made here -------------------------------------------------------------------------------------------


@given(st.data())
def test_a_cursor_with_one_other_character_opens_nothing(data: st.DataObject) -> None:
    cursor = sealed(id=ID[: data.draw(st.integers(28, 32))])
    place = data.draw(st.integers(0, len(cursor) - 1))
    other = data.draw(st.sampled_from(ALPHABET + "=+/ \n") | st.characters())
    assume(other != cursor[place])
    assert refused(cursor[:place] + other + cursor[place + 1 :])


@pytest.mark.parametrize("id", [ID, ID[1:], ID[2:]])
def test_each_cursor_has_one_spelling(id: str) -> None:
    """Bits of the last character that hold nothing, and what base64 passes over, are looked at, too."""
    cursor = sealed(id=id)
    assert not refused(cursor)
    assert all(refused(cursor[:-1] + last) for last in ALPHABET if last != cursor[-1])
    for other in (cursor + "=", cursor + "==", cursor + "\n", " " + cursor, cursor[:9] + "." + cursor[9:]):
        assert refused(other)


@pytest.mark.parametrize("length", range(75))
def test_a_cut_cursor_opens_nothing(length: int) -> None:
    assert refused(sealed()[:length])


@given(st.text(max_size=400) | st.text(ALPHABET, max_size=400))
def test_garbage_opens_nothing(cursor: str) -> None:
    assert refused(cursor)


@pytest.mark.parametrize("cursor", ["", "A", "AAAAA", "=", "ä", "\ud800", "A" * 22, "A" * 300])
def test_what_cannot_even_be_read_opens_nothing(cursor: str) -> None:
    assert refused(cursor)


@given(st.binary(max_size=80))
def test_a_body_without_its_tag_opens_nothing(raw: bytes) -> None:
    assert refused(urlsafe_b64encode(raw).rstrip(b"=").decode())


# --- length -----------------------------------------------------------------------------------------------------------


def test_what_is_longer_than_a_cursor_may_be_is_not_even_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []

    def decode(text: str) -> bytes:
        decoded.append(text)
        return b""

    monkeypatch.setattr("taskgate.domain.cursors.urlsafe_b64decode", decode)
    assert refused("A" * MAX_LENGTH)
    assert refused("A" * (MAX_LENGTH + 1))
    assert decoded == ["A" * MAX_LENGTH]


def test_what_could_not_be_opened_is_not_sealed() -> None:
    longest = "i" * (MAX_LENGTH // 4 * 3 - 24)
    assert len(sealed(id=longest)) == MAX_LENGTH
    assert KEYS.open(sealed(id=longest), context="c", mount="m") == (EPOCH, longest)
    with pytest.raises(ValueError, match="too long"):
        sealed(id=longest + "i")
