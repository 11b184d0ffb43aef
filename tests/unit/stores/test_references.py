"""References of tasks and their numbers."""

from hypothesis import given
from hypothesis import strategies as st

from taskgate.stores.codec import pack_reference
from taskgate.stores.references import plain_reference
from taskgate.telemetry.auditlog.formats.digests import task_ref

IDS = st.text(st.characters(), max_size=40)


@given(IDS)
def test_a_plain_reference_has_the_form_of_one_with_a_key(id: str) -> None:
    one, other = plain_reference(id), task_ref(b"key", id)
    assert len(one) == len(other) == 24
    assert one[:2] == other[:2] == "t_"
    assert one.isascii()
    assert one != other


def test_the_number_is_that_of_the_first_64_bits() -> None:
    assert pack_reference("t_AAAAAAAAAAH__________-") == 1
    assert pack_reference("t_" + "_" * 22) == -1
    assert pack_reference("t_-_________8A") == pack_reference("t_-_________9BCDEFGHIJKLMN")
