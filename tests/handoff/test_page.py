"""The page about calls of every length is what the table and the last long run make."""

from handoff.matrix import PAGE, page


def test_the_page_is_what_the_table_makes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.handoff.matrix writes it anew"
