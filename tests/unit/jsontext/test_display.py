"""Texts of others, made fit for people and models."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from taskgate.jsontext.display import clean, one_line, quoted

ANY = st.text(st.characters() | st.sampled_from("\u061c\u200b\u202e\ufeff\U000e0041"))


def has_control(text: str, but: str) -> bool:
    """Whether a terminal would obey a part of the text."""
    bidirectional = {*"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029"}
    invisible = {*"\u200b\u2060\ufeff\U000e0001\U000e0041\U000e007f"}
    return any(
        (unicodedata.category(each) in {"Cc", "Cs"} and each not in but) or each in bidirectional | invisible
        for each in text
    )


@given(ANY)
def test_a_cleaned_text_has_no_control_character_but_tab_and_line_feed(text: str) -> None:
    assert not has_control(clean(text), "\t\n")
    assert len(clean(text)) == len(text)


@given(ANY)
def test_a_text_in_one_line_has_none_at_all_and_is_short(text: str) -> None:
    line = one_line(text, 20)
    assert not has_control(line, "")
    assert len(line) <= 20


def test_letters_of_every_language_stay() -> None:
    assert (
        clean("日本語 العربية é \U0001f600") == one_line("日本語 العربية é \U0001f600") == "日本語 العربية é \U0001f600"
    )


def test_a_quoted_name_is_short_and_cannot_end_its_quotation() -> None:
    assert quoted('a"b\n\u202ec') == '"a\'b \ufffdc"'
    assert quoted(300 * "x") == f'"{199 * "x"}…"'
