"""Files of cases are read, judged and written."""

from pathlib import Path

import pytest

from helpers.case_files import Judge, Runner, all_sections, read_file
from helpers.case_values import quoted, read, show, unquoted
from taskgate.domain.versions import Peer, Revision
from taskgate.protocol.messages import Params

FILE = """Tasks are read.

# An id has 32 letters [L-GET-2, AMB-17]
; As others do.
$ messages.is_task_id value
"x" => true
"y" => false

## long
"z"
----
true
"""


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """Runs a file in which two of three outputs are wrong."""
    (tmp_path / "protocol").mkdir()
    (tmp_path / "protocol" / "ids.txt").write_text(FILE)
    return Runner("protocol", root=tmp_path)


def test_another_output_fails_with_a_diff(runner: Runner) -> None:
    (cases,) = runner.sections.values()
    with pytest.raises(pytest.fail.Exception) as failed:
        runner.check(cases, rewrite=False)
    lines = str(failed.value).splitlines()
    assert [line for line in lines if line[0] in "-+" and line[:3] not in ("---", "+++")] == [
        '-"x" => true',
        '+"x" => false',
        "-true",
        "+false",
    ]


def test_outputs_are_written_and_nothing_else_is(runner: Runner) -> None:
    (cases,) = runner.sections.values()
    runner.check(cases, rewrite=True)
    assert cases[0].file.path.read_text() == FILE.replace("true", "false")


def test_a_judge_gets_what_came_out(runner: Runner, tmp_path: Path) -> None:
    judged = []
    (tmp_path / "protocol" / "ids.txt").write_text(FILE.replace("true", "false"))
    judges: dict[str, Judge] = {"messages.is_task_id": lambda found, given: judged.append((found, given))}
    strict = Runner("protocol", judges=judges, root=tmp_path)
    for cases in strict.sections.values():
        strict.check(cases, rewrite=False)
    assert judged == [(False, {"value": each}) for each in "xyz"]


def test_a_heading_names_ids(runner: Runner, tmp_path: Path) -> None:
    (section,) = all_sections(tmp_path)
    assert (section.sentence, section.ids, section.requirements) == (
        "An id has 32 letters",
        ("L-GET-2", "AMB-17"),
        ["L-GET-2"],
    )


@pytest.mark.parametrize("line", ["# A [", "a", "## a\nb"])
def test_what_is_no_case_is_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "a.txt"
    file.write_text(f"# A\n$ a b\n{line}\n")
    with pytest.raises(ValueError, match=r"a\.txt"):
        read_file(file)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a", "a"),
        ("", "''"),
        ("7", "'7'"),
        ("none", "'none'"),
        (" a", "' a'"),
        ('{"a": "\\u00e9"}', '{"a": "\\u00e9"}'),
        ('"a"\n\\"', '\'"a"\\n\\\\"\''),
        ("a => b | c", "'a \\u003d> b \\u007c c'"),
        ("\udcff", "'\\udcff'"),
    ],
)
def test_a_text_is_written_so_that_it_reads_as_itself(text: str, written: str) -> None:
    assert quoted(text) == written
    assert unquoted(written) == text


def test_a_value_is_read_by_its_type() -> None:
    assert read(bool | None, "none") is None
    assert read(str | int, "7") == 7
    assert read(str | int, "'7'") == "7"
    assert read(Revision, "2025-11-25") is Revision.R2025_11_25
    assert read(Peer, "2025-11-25") == Peer(revision=Revision.R2025_11_25, capabilities={}, info={})
    assert read(Params, '{"a":<token>}') == Params('{"a":', "}")
    assert read(tuple[Revision, ...], '["2025-11-25"]') == (Revision.R2025_11_25,)


def test_an_object_is_shown_without_its_defaults_and_by_lines_if_it_is_long() -> None:
    assert show(Params('{"a":', "}")) == '{"a":<token>}'
    peer = Peer(revision=Revision.R2025_11_25, capabilities={"a": 1}, info={})
    assert show(peer) == "Peer(revision=2025-11-25, capabilities={a: 1}, info={})"
    assert show(peer._replace(info={"name": "x" * 200})).splitlines()[1:3] == [
        "  revision: 2025-11-25",
        "  capabilities: {a: 1}",
    ]
