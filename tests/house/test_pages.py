"""The pages that a program writes are as it would write them now."""

from pathlib import Path

import pytest

from house.pages import AREAS, decision_of, decisions, pages
from requirements import REQUIREMENTS


@pytest.mark.parametrize("file", pages(), ids=lambda file: file.name)
def test_a_page_is_as_it_would_be_written_now(file: Path) -> None:
    assert file.read_text() == pages()[file], "run `make pages`"


def test_every_id_belongs_to_an_area_of_the_page() -> None:
    assert {id[0] for id in REQUIREMENTS} == AREAS.keys()


def test_no_two_decisions_have_one_number_or_one_title() -> None:
    found = [decision for _, decision in decisions()]
    assert len({each.number for each in found}) == len({each.title for each in found}) == len(found)


@pytest.mark.parametrize("head", ["# 0001. A", "# 0002: A", "# 0001: A\n\n**Status.** Accepted.\n"])
def test_a_decision_without_number_title_status_or_date_is_seen(tmp_path: Path, head: str) -> None:
    file = tmp_path / "0001-a.md"
    file.write_text(head if "Status" in head else f"{head}\n\n**Status.** Accepted, 2026-11-22.\n")
    with pytest.raises(ValueError, match="0001-a"):
        decision_of(file)
    file.write_text("# 0001: A\n\n**Status.** Accepted, 2026-11-22.\n")
    assert decision_of(file) == ("0001", "A", "2026-11-22", "Accepted")
