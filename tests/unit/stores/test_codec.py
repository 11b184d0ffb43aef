"""The bytes that stores keep: each value comes back as it was, and unreadable bytes are refused."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.manual_clock import EPOCH
from helpers.records import new_call, new_input, new_lease, new_peer, new_record
from taskgate.domain.listing import listed_task
from taskgate.domain.record import (
    MAX_TRANSITIONS,
    CallerNames,
    Faulted,
    FaultReason,
    Lease,
    Outcome,
    OwnerKey,
    SealedCheckpoint,
    Succeeded,
    TaskRecord,
    TaskStatus,
    Transition,
    outcome_text,
)
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import StoreUnavailable
from taskgate.jsontext.large import LargeJson
from taskgate.stores import codec
from taskgate.stores.references import plain_reference

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
spans = st.timedeltas(min_value=timedelta(), max_value=timedelta(days=36_500))
leases = st.none() | st.builds(Lease, holder=texts, until=moments)
inputs = st.builds(new_input, texts, method=texts, params=texts, claimed_by=st.none() | texts)
heads = st.builds(
    new_record,
    id=texts,
    owner=st.builds(OwnerKey, texts, texts),
    call=st.builds(
        new_call,
        tool=texts,
        peer=peers,
        host_session=st.none() | texts,
        progress_token=st.none() | texts | st.integers(),
        params=st.none(),
    ),
    status=st.sampled_from(TaskStatus),
    status_message=st.none() | texts,
    created_at=moments,
    updated_at=moments,
    ttl=spans,
    poll_interval=spans,
    revision=st.integers(0, 2**70),
    dispatched=st.booleans(),
    dispatched_at=st.none() | moments,
    inputs=st.lists(inputs, max_size=2).map(tuple),
    inputs_made=st.integers(0, 9),
    answers=st.dictionaries(texts, texts, max_size=2),
    tool_error=st.booleans(),
    lease=leases,
    tenant=st.none() | texts,
    deadline=st.none() | spans,
    reruns=st.integers(0, 3),
    idempotency_digest=st.none() | texts,
    trace=st.none() | texts,
    waiting_since=st.none() | moments,
    retrieved=st.booleans(),
    checkpoint=st.none() | st.builds(SealedCheckpoint, sealed=texts, answers=st.dictionaries(texts, texts, max_size=2)),
    handed_to=st.none() | texts,
).map(lambda record: record if record.dispatched else replace(record, dispatched_at=None))


@given(heads)
def test_a_head_comes_back_as_it_was_with_the_lease_that_is_given(head: TaskRecord) -> None:
    assert codec.unpack_head(codec.pack_head(head), head.lease) == head


def test_the_time_of_the_dispatch_stands_where_earlier_releases_have_true() -> None:
    early = new_record(dispatched=True)
    late = replace(early, dispatched_at=EPOCH)
    one, other = (orjson.loads(codec.pack_head(each)) for each in (early, late))
    [place] = [index for index, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]]
    assert (one[place], other[place]) == (True, codec.pack_time(EPOCH))
    assert codec.unpack_head(codec.pack_head(early), None).dispatched_at is None


@given(st.none() | st.builds(CallerNames, texts, texts, st.none() | texts, st.none() | texts))
def test_a_head_has_the_caller_that_is_stored_beside_it(caller: CallerNames | None) -> None:
    packed = None if caller is None else codec.pack_caller(caller).encode()
    assert codec.unpack_head(codec.pack_head(new_record()), None, caller=packed).caller == caller


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "\xff",
        "null",
        "[]",
        "{}",
        '"four"',
        '["a","b",null]',
        '["a","b",1,null]',
        '["a",null,null,null]',
        "[[],[],[],[]]",
    ],
)
def test_a_damaged_caller_hides_no_task(text: str) -> None:
    assert codec.unpack_head(codec.pack_head(new_record()), None, caller=text.encode("latin-1")).caller is None


@pytest.mark.parametrize(
    ("texts", "expected"), [((), True), (("bob",), True), (("bob", "working"), True), (("bob", "completed"), False)]
)
def test_a_text_is_in_the_head_or_in_the_names_of_the_caller(texts: tuple[str, ...], expected: bool) -> None:
    caller = codec.pack_caller(CallerNames("corp", "bob", None, None)).encode()
    found = [text for each in texts if (text := codec.text_in_head(each)) is not None]
    assert codec.has_texts(found, codec.pack_head(new_record()), caller) is expected


@given(heads, moments)
def test_a_head_has_the_expiry_that_is_stored_beside_it(head: TaskRecord, expires: datetime) -> None:
    found = codec.unpack_head(codec.pack_head(head), head.lease, codec.pack_time(expires))
    assert (found.expires_at, found.id, found.ttl) == (expires, head.id, head.ttl)


@given(heads, st.booleans(), st.none() | st.text("abc-_", max_size=4))
def test_a_head_of_an_ended_task_tells_unread_whether_its_result_was_retrieved(
    head: TaskRecord, retrieved: bool, host: str | None
) -> None:
    ended = replace(head, status=TaskStatus.COMPLETED, checkpoint=None, retrieved=retrieved, handed_to=host)
    assert codec.is_retrieved(codec.pack_head(ended)) is retrieved


@given(tool=texts, message=texts)
def test_a_head_has_in_it_what_is_said_of_its_texts(tool: str, message: str) -> None:
    packed = codec.pack_head(new_record(call=new_call(tool=tool), status_message=message))
    assert (codec.text_in_head(tool) or b"") in packed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("reports", b'"reports"'),
        ("two words", b'"two words"'),
        *dict.fromkeys(('a"b', "a\\b", "é", "\n", "\ud800")).items(),
    ],
)
def test_a_text_whose_form_depends_on_the_rest_of_its_head_is_not_looked_for(text: str, found: bytes | None) -> None:
    assert codec.text_in_head(text) == found


def test_a_packed_head_holds_neither_bodies_nor_lease() -> None:
    record = new_record(
        params='{"secret":1}',
        lease=new_lease(holder="holder-7"),
        outcome=Succeeded(result='"secret"', tool_error=False),
    )
    assert codec.pack_head(record) == codec.pack_head(replace(codec.as_head(record), lease=None))
    assert b"secret" not in codec.pack_head(record)
    assert b"holder-7" not in codec.pack_head(record)


def test_an_unpacked_head_has_the_types_it_had() -> None:
    head = codec.unpack_head(codec.pack_head(new_record(inputs=(new_input(),))), None)
    assert type(head.status) is TaskStatus
    assert type(head.call.peer.revision) is Revision
    assert type(head.owner) is OwnerKey
    assert type(head.inputs) is tuple
    assert head.created_at.tzinfo is UTC


def test_a_head_is_an_array_that_starts_with_the_schema() -> None:
    assert orjson.loads(codec.pack_head(new_record()))[0] == codec.SCHEMA


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant": "t"},
        {"deadline": timedelta(seconds=9)},
        {"reruns": 1},
        {"idempotency_digest": "k"},
        {"trace": "00-1-2-01"},
        {"waiting_since": EPOCH},
        {"retrieved": True},
        {"checkpoint": SealedCheckpoint(sealed="s")},
        {"handed_to": "h"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_few_records_have_is_in_their_heads_alone(changes: dict[str, Any]) -> None:
    plain, rare = (len(orjson.loads(codec.pack_head(record))) for record in (new_record(), new_record(**changes)))
    assert (plain, rare) == (20, 21)


def test_a_head_of_an_earlier_version_has_none_of_what_is_rare() -> None:
    head = (
        b'[1,"id","context","mount","tool",["2025-11-25",{},{}],null,null,"working",null,'
        b"1767225600000000,1767225600000000,3600000000,1000000,0,false,[],0,{},false]"
    )
    record = codec.unpack_head(head, None)
    assert (record.tenant, record.deadline, record.reruns, record.idempotency_digest) == (None, None, 0, None)
    assert (record.trace, record.waiting_since, record.retrieved) == (None, None, False)
    assert codec.pack_head(record) == head


def test_a_head_of_an_earlier_version_with_what_was_rare_then_has_none_of_what_came_later() -> None:
    head = (
        b'[1,"id","context","mount","tool",["2025-11-25",{},{}],null,null,"working",null,'
        b'1767225600000000,1767225600000000,3600000000,1000000,0,false,[],0,{},false,["tenant",9000000,1,"key"]]'
    )
    record = codec.unpack_head(head, None)
    assert (record.tenant, record.deadline) == ("tenant", timedelta(seconds=9))
    assert (record.reruns, record.idempotency_digest) == (1, "key")
    assert (record.trace, record.waiting_since, record.retrieved) == (None, None, False)
    assert codec.pack_head(record) == head
    assert codec.unpack_listed(head, codec.pack_time(record.expires_at)) == listed_task(record)


def test_of_the_call_of_a_head_of_an_earlier_version_nothing_is_kept() -> None:
    head = codec.pack_head(new_record(retrieved=True, trace="00-1-2-01"))
    assert len(orjson.loads(head)[-1]) == 7
    assert codec.unpack_head(head, None).checkpoint is None


def test_what_is_kept_of_a_call_is_at_the_end_of_its_head_with_the_answers_so_far() -> None:
    kept = SealedCheckpoint(sealed="s", answers={"input-1": '{"result":{}}'})
    head = codec.pack_head(new_record(checkpoint=kept))
    assert orjson.loads(head)[-1][-1] == ["s", {"input-1": '{"result":{}}'}]
    assert codec.unpack_head(head, None).checkpoint == kept
    record = codec.unpack_head(head, None)
    assert codec.unpack_listed(head, codec.pack_time(record.expires_at)) == listed_task(record)


def _changed(place: int, value: object) -> bytes:
    fields = json.loads(codec.pack_head(new_record()))
    fields[place] = value
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b" ",
        b"[]",
        b"null",
        b"7",
        b"[1]",
        b"[1,2,3]",
        b"[1,",
        b"\xff",
        b" \xff",
        codec.pack_head(new_record())[:-1],
        codec.pack_head(new_record())[:-1] + b",0]",
        codec.pack_head(new_record())[:-1] + b",[null,null,0]]",
        codec.pack_head(new_record())[:-1] + b',[null,"soon",0,null]]',
        codec.pack_head(new_record())[:-1] + b",[null,null,0,null,null]]",
        codec.pack_head(new_record())[:-1] + b",[null,null,0,null,null,null,false,0]]",
        codec.pack_head(new_record())[:-1] + b',[null,null,0,null,null,"then",false]]',
        codec.pack_head(new_record())[:-1] + b',[null,null,0,null,null,null,false,["s"]]]',
        codec.pack_head(new_record())[:-1] + b',[null,null,0,null,null,null,false,["s",{}],0]]',
        codec.pack_head(new_record())[:-1] + b",[null,null,0,null,null,null,false,null,7]]",
        codec.pack_head(new_record(reruns=1))[:-1] + b",0]",
        _changed(5, ["1999-01-01", {}, {}]),
        _changed(5, None),
        _changed(8, "paused"),
        _changed(8, ["working"]),
        _changed(10, "now"),
        _changed(10, 10**30),
        _changed(16, [["key"]]),
    ],
)
def test_a_head_that_cannot_be_read_is_refused(head: bytes) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        codec.unpack_head(head, None)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"7",
        b"[1]",
        b"\xff",
        b" " + b"[" * 100_000,
        7,
        codec.pack_head(new_record())[:-1] + b",0]",
        codec.pack_head(new_record())[:-1] + b",[null,null,0]]",
        codec.pack_head(new_record())[:-1] + b",[null,null,0,null,null]]",
        codec.pack_head(new_record(reruns=1))[:-1] + b",0]",
        _changed(8, "paused"),
        _changed(8, ["working"]),
        _changed(10, "now"),
        _changed(10, 10**30),
        _changed(10, -(10**18)),
        _changed(11, "now"),
        _changed(11, 10**18),
        _changed(11, -(10**18)),
        _changed(10, 0.5),
        _changed(11, 0.5),
        _changed(12, 9 * 10**18),
        orjson.dumps([1, *[{}] * 19]),
    ],
)
def test_a_head_that_cannot_be_read_is_refused_by_lists_too(head: Any) -> None:
    with pytest.raises(StoreUnavailable):
        codec.unpack_listed(head, 0)


@given(heads)
def test_a_list_tells_of_a_packed_head_what_it_tells_of_the_record(head: TaskRecord) -> None:
    assert codec.unpack_listed(codec.pack_head(head), codec.pack_time(head.expires_at)) == listed_task(head)


@pytest.mark.parametrize("length", [1, codec.MAX_CACHED], ids=["short", "long"])
def test_only_short_heads_are_remembered(length: int) -> None:
    head = codec.pack_head(new_record(status_message="m" * length))
    assert (codec.unpack_listed(head, 0) is codec.unpack_listed(bytes(bytearray(head)), 0)) is (length == 1)


@pytest.mark.parametrize("schema", [0, 2, "1", None])
def test_a_head_of_another_schema_is_refused_by_name(schema: object) -> None:
    with pytest.raises(StoreUnavailable, match="another version"):
        codec.unpack_head(_changed(0, schema), None)


# --- bodies, peers, names, times and leases ---------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"7",
        b'[1,"2025-11-25",{}]',
        b'[1,"1999-01-01",{},{}]',
        b"[1,[],{},{}]",
        b"[" * 100_000,
        b" " + b"[" * 100_000,
    ],
    ids=lambda text: text[:30].decode(),
)
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


def test_a_name_that_no_store_can_hold_equals_nothing() -> None:
    assert [codec.pack_name(id) for id in ("task-1", "task\0", "")] == ["task-1", None, ""]


@pytest.mark.parametrize("outcome", [None, Succeeded(result='{"content":[]}', tool_error=False)])
def test_bodies_come_back_beside_their_head(outcome: Outcome | None) -> None:
    kind, packed = (None, None) if outcome is None else codec.pack_outcome(outcome)
    found = codec.unpack_bodies(new_record(), b'{"name":"echo"}', kind, packed)
    assert (found.call.params, found.outcome) == ('{"name":"echo"}', outcome)


@given(moments)
def test_a_moment_comes_back_to_the_microsecond(moment: datetime) -> None:
    assert codec.unpack_time(codec.pack_time(moment)) == moment


@given(moments, moments)
def test_packed_moments_are_ordered_as_moments_are(one: datetime, other: datetime) -> None:
    assert (codec.pack_time(one) < codec.pack_time(other)) == (one < other)


def test_times_are_microseconds_since_1970() -> None:
    assert codec.pack_time(datetime(1970, 1, 2, 0, 0, 1, 5, tzinfo=UTC)) == 86_401_000_005


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


# --- transitions and places -------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from([TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED]), st.datetimes(
    timezones=st.just(UTC), min_value=datetime.fromisoformat("1971-01-01")))))  # fmt: skip
def test_packed_transitions_come_back_as_they_were(changes: list[tuple[TaskStatus, datetime]]) -> None:
    packed = "".join(codec.pack_transition(new_record(status=status, updated_at=time)) for status, time in changes)
    assert len(packed) == len(changes) * codec.TRANSITION_LENGTH
    assert codec.unpack_transitions(packed) == tuple(Transition(*change) for change in changes)
    assert len(codec.unpack_transitions(packed[-codec.PACKED_TRANSITIONS :])) == min(len(changes), MAX_TRANSITIONS - 1)


@pytest.mark.parametrize("packed", ["x000000000000000001", "w", "w00000000000000000x", "w999999999999999999"])
def test_damaged_transitions_are_unreadable(packed: str) -> None:
    with pytest.raises(StoreUnavailable):
        codec.unpack_transitions(packed)


def test_a_place_is_a_number_and_the_first_one_comes_before_all() -> None:
    assert codec.unpack_place(None) == 0
    assert codec.unpack_place("17") == 17
    assert [codec.unpack_place(text) for text in ("", "x", "-1", "1" * 40, "1 ")] == [None] * 5


@given(st.lists(st.integers(min_value=-(2**63), max_value=2**63 - 1)))
def test_packed_numbers_are_a_json_array_of_them(numbers: list[int]) -> None:
    assert json.loads(codec.pack_numbers(numbers)) == numbers


@given(st.text(st.characters(), max_size=40))
def test_the_function_of_numbers_packs_the_references_of_ids(id: str) -> None:
    number = codec.number_function(plain_reference)(id)
    assert number == codec.pack_reference(plain_reference(id))
    assert -(2**63) <= number < 2**63


@pytest.mark.parametrize("text", ["t_A", "t_\ud800" + "A" * 21])
def test_a_text_that_is_no_reference_is_not_packed(text: str) -> None:
    with pytest.raises(ValueError):
        codec.pack_reference(text)


def test_a_text_that_is_too_long_for_an_id_is_not_hashed() -> None:
    def refuse(_: str) -> str:
        raise AssertionError("it is remembered there")

    assert codec.number_function(refuse)("x" * (codec.MAX_ID + 1)) == 0
