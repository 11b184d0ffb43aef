"""Docstrings, comments and messages are plain: short sentences, and words that a stranger knows."""

from pathlib import Path

import pytest

from house.prose import exempt, findings, folders, judged, sentences

HERE = Path("module.py")


def rules(source: str) -> list[str]:
    return [each.rule for each in findings(HERE, source)]


def test_folders_that_are_not_exempt_read_plainly() -> None:
    assert [str(each) for each in judged([folder for folder in folders() if folder not in exempt()])] == []


def test_a_folder_that_reads_plainly_is_not_exempt() -> None:
    assert set(exempt()) <= set(folders())
    assert [folder for folder in exempt() if not any(judged([folder]))] == []


# --- each rule can fail ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        '"""A store, for whoever asks."""',
        '"""A store."""\n# Nobody reads it.\nx = 1',
        'raise ValueError(f"somebody has {x}")',
        'log.info("the call was gone on with")',
        'click.option("--x", help="For whom the call is.")',
        'x = 1\n"""What of it."""',
    ],
)
def test_a_retired_word_is_found_wherever_a_person_reads_it(source: str) -> None:
    assert rules(source) == ["word"]


@pytest.mark.parametrize("first", ["What a store is.", "How it works.", "Nothing is here.", "It keeps tasks."])
def test_a_module_or_a_class_begins_with_what_it_is(first: str) -> None:
    assert rules(f'"""{first}"""') == ["opener"]
    assert rules(f'class A:\n    """{first}"""') == ["opener"]
    assert rules(f'def a():\n    """{first}"""') == []


def test_a_docstring_that_only_points_elsewhere_and_one_of_an_override_are_found() -> None:
    assert rules('def a():\n    """See Store."""') == ["pointer"]
    assert rules('class A:\n    @override\n    def a(self):\n        """Close it."""') == ["override"]


def test_a_long_sentence_is_found_in_a_docstring_and_over_the_lines_of_a_comment() -> None:
    words = " ".join(["word"] * 13)
    assert rules(f'"""A thing.\n\nOne {words}\n{words}.\n"""') == ["sentence of 27 words"]
    assert rules(f"# One {words}\n# {words}.\nx = 1") == ["sentence of 27 words"]
    assert rules(f"# One {words}\nx = 1\n# {words}.") == []


def test_a_sentence_ends_at_a_full_stop_a_blank_line_a_row_and_an_item() -> None:
    text = "One is. Two\n\nThree\n  four\n- five (six.)\n1. Seven e.g. eight."
    assert [*sentences(text)] == ["One is.", "Two", "Three", "four", "- five (six.)", "1.", "Seven e.g. eight."]


def test_plain_prose_and_strings_that_are_no_messages_pass() -> None:
    assert rules('"""A store of tasks."""\nSQL = "whoever"\nlog.info("store closed")\n# A reason.') == []
