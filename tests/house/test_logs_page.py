"""docs/logs.md has every message of the log once, with its level and its fields, and none that does not exist."""

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from house.log_messages import LogMessage, log_messages, messages_in
from taskgate.system.log_throttle import LOG_PAUSE, MOST_LINES
from taskgate.telemetry.log_recorder import PAUSE

PAGE = (Path(__file__).parents[2] / "docs" / "logs.md").read_text(encoding="utf-8")
MESSAGES = log_messages()


class Row(NamedTuple):
    """A message of the page."""

    text: str
    level: str
    fields: frozenset[str]


def rows() -> list[Row]:
    """The rows of all tables of the page."""
    found = re.findall(r"^\| (?:`` (.+?) ``|`([^`]+)`) \| (\w+) \|([^|]*)\|", PAGE, re.MULTILINE)
    return [
        Row(ticked or plain, level, frozenset(re.findall(r"`(\w+)`", fields))) for ticked, plain, level, fields in found
    ]


def shown_by_calls() -> Mapping[str, tuple[set[str], set[str]]]:
    """Of each message, the levels and the fields that its calls show."""
    shown: defaultdict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for message in MESSAGES:
        levels, fields = shown[message.text]
        levels |= {message.level} if message.level else set()
        fields |= message.fields
    return shown


def test_every_message_is_on_the_page_once_and_no_other() -> None:
    assert sorted(row.text for row in rows()) == sorted({message.text for message in MESSAGES})


def test_each_has_its_level_and_its_fields() -> None:
    calls = shown_by_calls()
    for row in rows():
        levels, fields = calls[row.text]
        assert levels <= {row.level}, row.text
        assert fields <= row.fields, row.text


def test_bounds_are_as_the_page_says() -> None:
    text = " ".join(PAGE.split())
    assert f"at most one line in {PAUSE:.0f} s about its health" in text
    assert f"one line in {LOG_PAUSE:.0f} s for each caller" in text
    assert f"at most {MOST_LINES} of these lines in each minute" in text
    assert LOG_PAUSE == 60


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('log.info("a %s", x, extra={"b": 1, **c})', LogMessage("a …", "info", frozenset("b"))),
        ('_log.exception("a")', LogMessage("a", "error", frozenset())),
        ('self._log.log(WARNING, "a")', LogMessage("a", "warning", frozenset())),
        ('log.log(self._level, "a")', LogMessage("a", None, frozenset())),
        ('A = f"a {b}"\nlog.warning(A)', LogMessage("a …", "warning", frozenset())),
        ('KeyedLog(log, "a", level=logging.INFO)', LogMessage("a", "info", frozenset())),
        ('def _report(what):\n    log.error(what)\n_report("a")', LogMessage("a", None, frozenset())),
    ],
)
def test_a_message_is_found_however_it_is_logged(source: str, expected: LogMessage) -> None:
    assert messages_in(source) == [expected]


def test_a_message_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"message\(\)"):
        messages_in("log.warning(message())")
