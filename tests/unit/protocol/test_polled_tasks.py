"""What is kept of polled tasks: few, and nothing large."""

from helpers.records import after, new_input, new_record
from taskgate.domain.events import InputRequested
from taskgate.domain.record import TaskRecord
from taskgate.protocol.polled_tasks import LONGEST, MOST, PolledTasks
from taskgate.stores.codec import as_head

TEXT = '{"before":1,"pollInterval":0,"behind":2}'
KEY = '"pollInterval":'


def head(**values: object) -> TaskRecord:
    return as_head(new_record(**values))


def test_a_text_is_kept_before_and_behind_its_interval() -> None:
    polled, record = PolledTasks(), head()
    kept = polled.add(record, TEXT, KEY)
    assert kept == (record, '{"before":1,"pollInterval":', ',"behind":2}')
    assert polled == {record.id: kept}


def test_few_are_kept() -> None:
    polled = PolledTasks()
    for _ in range(MOST + 1):
        polled.add(head(), TEXT, KEY)
    assert len(polled) == 1


def test_nothing_large_is_kept() -> None:
    polled, long = PolledTasks(), TEXT.ljust(LONGEST + 1)
    assert polled.add(head(), long, KEY)[2] == long.partition("0")[2]
    for record in (new_record(params="{}"), as_head(after(new_record(), InputRequested(request=new_input())))):
        assert polled.add(record, TEXT, KEY)[0] is record
    assert polled == {}
