"""What docs/audit.md says of how lines are kept is what the code does."""

import re
from pathlib import Path
from typing import get_args

import pytest

from taskgate.config.sections.audit import AuditSection, AuditSinkSection
from taskgate.telemetry import ring
from taskgate.telemetry.auditlog import log, sink_queue
from taskgate.telemetry.auditlog.settings import Fsync, OnFull

TEXT = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


def _first_cells(section: str) -> list[list[str]]:
    """The words in backticks of the first column of every table under a heading, without the heads of columns."""
    text = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    tables = re.findall(r"^\|-.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    columns = ["".join(row.split("|")[1] for row in table.splitlines()) for table in tables]
    return [re.findall(r"`([^`]+)`", column) for column in columns]


def test_every_way_to_wait_for_the_disk_is_on_the_page() -> None:
    assert _first_cells("Where lines go") == [[*get_args(Fsync)]]


def test_every_way_to_be_full_and_every_cause_of_a_gap_is_on_the_page() -> None:
    ways, causes = _first_cells("When a sink cannot take lines")
    assert ways == [*get_args(OnFull)]
    folder = Path(sink_queue.__file__).parent
    source = "".join(file.read_text(encoding="utf-8") for file in folder.glob("*.py"))
    found = re.findall(r'Gap\("(\w+)"', source) + re.findall(r'reason = .*?"(queue_full|write_failed)"', source)
    assert set(causes) == set(found)


def test_the_numbers_on_the_page_are_those_of_the_code() -> None:
    assert f"comes within {round(ring.FOLD_DELAY * 1000)} ms" in TEXT
    assert log.CLOSE_TIMEOUT == 5
    assert "has five seconds for its own lines" in TEXT
    assert sink_queue.SYNC_DELAY == 1
    assert "the last second" in TEXT


@pytest.mark.parametrize("key", [*AuditSection.model_fields, *AuditSinkSection.model_fields])
def test_every_key_of_the_log_is_on_the_page(key: str) -> None:
    assert re.search(rf"\b{key}\b", TEXT)
