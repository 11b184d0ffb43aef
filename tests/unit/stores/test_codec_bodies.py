"""Bodies, peers, names, times and leases as bytes: what goes in comes out, and what cannot be read says so."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.manual_clock import EPOCH
from helpers.records import new_lease, new_peer, new_record
from taskgate.domain.record import Faulted, FaultReason, Lease, Outcome, Succeeded, TaskRecord, TaskStatus, outcome_text
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import StoreUnavailable
from taskgate.jsontext.large import LargeJson
from taskgate.stores import codec

# Every code point, those that no encoding knows included.
texts = st.text(st.characters(exclude_categories=()), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(texts, values, max_size=3)
peers = st.builds(Peer, revision=st.sampled_from(Revision), capabilities=objects, info=objects)
moments = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001  the strategy adds the zone
    max_value=datetime(2900, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)


# --- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [new_record(params=None), new_record(status=TaskStatus.CANCELLED, params=None)])
def test_a_head_is_its_own_head(record: TaskRecord) -> None:
    assert codec.as_head(record) is record


@pytest.mark.parametrize("outcome", [None, Succeeded(result="{}", tool_error=False)])
@pytest.mark.parametrize("params", [None, "{}"])
def test_a_head_has_no_bodies(params: str | None, outcome: Outcome | None) -> None:
    head = codec.as_head(new_record(params=params, outcome=outcome))
    assert (head.call.params, head.outcome) == (None, None)


def test_a_record_is_its_head_with_its_bodies() -> None:
    record = new_record(params="[1]", outcome=Succeeded(result="2", tool_error=False))
    head = codec.as_head(record)
    assert (head.call.params, head.outcome) == (None, None)
    assert codec.with_bodies(head, record.call.params, record.outcome) == record


OUTCOMES: list[Outcome] = [
    Succeeded(result='{"content":[]}', tool_error=False),
    Succeeded(result="\ud800\0ä", tool_error=True),
    *(Faulted(error='{"code":-32603}', reason=reason) for reason in FaultReason),
]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_comes_back_as_it_was(outcome: Outcome) -> None:
    assert codec.unpack_outcome(*codec.pack_outcome(outcome)) == outcome


LARGE = ["ä" * codec.LARGE, "x" * (codec.LARGE - 1) + "ä" + "x" * codec.LARGE]


@pytest.mark.parametrize("text", LARGE)
def test_a_large_outcome_comes_back_as_its_bytes_and_can_be_kept_again(text: str) -> None:
    for outcome in (
        Succeeded(result=text, tool_error=True),
        Faulted(error=text, reason=FaultReason.CLOSED),
    ):
        kind, body = codec.pack_outcome(outcome)
        back = codec.unpack_outcome(kind, body)
        assert outcome_text(back) == LargeJson(body)
        assert codec.pack_outcome(back) == (kind, body)


def test_a_large_outcome_that_no_encoding_knows_comes_back_as_it_was() -> None:
    odd = Succeeded(result="\ud800" * codec.LARGE, tool_error=False)
    assert codec.unpack_outcome(*codec.pack_outcome(odd)) == odd


def test_every_kind_of_outcome_has_a_name_of_its_own() -> None:
    kinds = {codec.pack_outcome(outcome)[0] for outcome in OUTCOMES}
    assert len(kinds) == len(OUTCOMES)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("unknown", b"{}"),
        ("", b""),
        ("result", b"\xff"),
        ("closed", b"\xc3"),
        ("result", b"x" * codec.LARGE + b"\xc3"),
        ("unknown", b"x" * 2 * codec.LARGE),
    ],
)
def test_an_outcome_that_cannot_be_read_is_refused(kind: str, body: bytes) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        codec.unpack_outcome(kind, body)


@given(texts)
def test_a_text_comes_back_as_it_was(text: str) -> None:
    assert codec.unpack_text(codec.pack_text(text)) == text


@pytest.mark.parametrize("odd", ["\ud800", 10**30])
def test_what_the_fast_encoder_refuses_comes_back_as_it_was(odd: object) -> None:
    peer = new_peer(info={"name": odd})
    assert codec.unpack_peer(codec.pack_peer(peer)) == peer


def test_a_text_that_utf_8_knows_is_kept_as_utf_8() -> None:
    assert codec.pack_text('"ä\N{ROCKET}"') == '"ä\N{ROCKET}"'.encode()


# --- sessions, names, times ------------------------------------------------------------------------------------------


@given(peers)
def test_a_peer_comes_back_as_it_was(peer: Peer) -> None:
    assert codec.unpack_peer(codec.pack_peer(peer)) == peer


@pytest.mark.parametrize("text", [b"", b"[]", b"7", b'[1,"2025-11-25",{}]', b'[1,"1999-01-01",{},{}]', b"[1,[],{},{}]"])
def test_a_peer_that_cannot_be_read_is_refused(text: bytes) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        codec.unpack_peer(text)


def test_a_peer_of_another_schema_is_refused_by_name() -> None:
    text = codec.pack_peer(new_peer()).replace(b"[1,", b"[2,", 1)
    with pytest.raises(StoreUnavailable, match="another version"):
        codec.unpack_peer(text)


@given(st.frozensets(texts, max_size=4))
def test_names_are_a_json_array(names: frozenset[str]) -> None:
    packed: list[Any] = json.loads(codec.pack_names(names))
    assert len(packed) == len(names)
    assert frozenset(packed) == names


@given(moments)
def test_a_moment_comes_back_to_the_microsecond(moment: datetime) -> None:
    assert codec.unpack_time(codec.pack_time(moment)) == moment


@given(moments, moments)
def test_packed_moments_are_ordered_as_moments_are(one: datetime, other: datetime) -> None:
    assert (codec.pack_time(one) < codec.pack_time(other)) == (one < other)


def test_times_are_microseconds_since_1970() -> None:
    assert codec.pack_time(datetime(1970, 1, 2, 0, 0, 1, 5, tzinfo=UTC)) == 86_401_000_005
    assert codec.pack_span(timedelta(days=1, seconds=2, microseconds=3)) == 86_402_000_003


# --- leases ----------------------------------------------------------------------------------------------------------

SHORT = new_lease()
LONG = new_lease(until=EPOCH + timedelta(hours=1))
FOREIGN = new_lease(holder="other", until=EPOCH)


@pytest.mark.parametrize(
    ("kept", "new", "expected"),
    [
        (None, None, None),
        (None, SHORT, SHORT),
        (SHORT, None, None),
        (SHORT, SHORT, SHORT),
        (SHORT, LONG, LONG),
        (LONG, SHORT, LONG),
        (LONG, FOREIGN, FOREIGN),
        (FOREIGN, LONG, LONG),
    ],
)
def test_a_swap_keeps_the_longer_lease_of_one_holder_and_else_the_new(
    kept: Lease | None, new: Lease | None, expected: Lease | None
) -> None:
    assert codec.longer_lease(kept, new) == expected


def test_a_large_outcome_is_given_as_bytes_and_a_small_one_as_it_is() -> None:
    small = Succeeded(result='{"content":[]}', tool_error=True)
    assert codec.as_stored(small) is small
    text = f'{{"content":["{"é" * codec.LARGE}"]}}'
    assert codec.as_stored(Succeeded(result=text, tool_error=True)) == Succeeded(
        result=LargeJson(text.encode()), tool_error=True
    )
