"""What is kept of polled tasks: few texts, and nothing large."""

from helpers.records import new_record
from taskgate.protocol.polled_tasks import LONGEST, MOST, PolledTasks

TEXT = '{"before":1,"pollInterval":0,"behind":2}'
KEY = '"pollInterval":'


def test_few_are_kept() -> None:
    polled = PolledTasks()
    for _ in range(MOST + 1):
        polled.add(new_record(), TEXT, KEY)
    assert len(polled) == 1


def test_no_long_text_is_kept() -> None:
    polled, long = PolledTasks(), TEXT.ljust(LONGEST + 1)
    assert polled.add(new_record(), long, KEY)[2] == long.partition("0")[2]
    assert polled == {}
