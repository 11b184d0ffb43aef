"""Tables and durations of the commands that ask a running gateway."""

from io import StringIO

import pytest

from taskgate.cli.remote.tables import duration, duration_between, later, print_fields, print_table

HOSTILE = "a\x1b[2J\tb\nc\x9b\u202e"


class Terminal(StringIO):
    """Standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-5, "0s"),
        (59, "59s"),
        (60, "1m"),
        (750, "12m30s"),
        (3_600, "1h"),
        (11_100, "3h5m"),
        (187_200, "2d4h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: int, text: str) -> None:
    assert duration(seconds) == text


def test_the_time_between_two_timestamps_is_unknown_if_one_is_none() -> None:
    assert duration_between("2026-11-28T10:00:00Z", "2026-11-28T10:01:30.5Z") == "1m30s"
    for wrong in (None, 5, "soon", "2026-11-28T10:00:00"):
        assert duration_between(wrong, "2026-11-28T10:01:30Z") == "-"


def test_a_time_that_is_none_is_not_moved() -> None:
    assert duration_between("2026-11-28T10:00:00Z", later("2026-11-28T10:00:00Z", 90.0)) == "1m30s"
    for wrong in (None, 5, "soon", "9999-12-31T23:59:59Z"):
        assert later(wrong, 1.0) == wrong


def test_without_a_terminal_a_row_is_a_line_with_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("A", "B"), [("1", HOSTILE), ("2", "x" * 500)], styles={"1": "red"}, cut={"B"})
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["A\tB", "1\ta\ufffd[2J b c\ufffd\ufffd"]
    assert lines[2] == f"2\t{'x' * 119}…"


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}], ids=["colours", "no colours"])
def test_a_terminal_gets_a_table_whose_colours_can_be_turned_off(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "100", **environment}.items():
        monkeypatch.setenv(name, value)
    print_table(
        ("REFERENCE", "B"), [("failed", HOSTILE), ("[bold]x[/bold] :smile:", "y")], styles={"failed": "red"}, cut={"B"}
    )
    out = terminal.getvalue()
    assert ("\x1b[31mfailed" in out) is not bool(environment)
    assert "[bold]x[/bold] :smile:" in out
    assert not {"\t", "\x9b", "\u202e"} & {*out}
    assert "\x1b[2J" not in out


def test_fields_are_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("a", HOSTILE), ("longer", ""), ("", "x")])
    assert capsys.readouterr().out == "a       a\ufffd[2J b c\ufffd\ufffd\nlonger\n        x\n"


def test_in_a_narrow_terminal_the_columns_are_cut_that_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    for name, value in {"TERM": "xterm", "COLUMNS": "60", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    print_table(
        ("REFERENCE", "TOOL", "STATUS"), [("t_" + "a" * 22, "x" * 100, "input_required")], styles={}, cut={"TOOL"}
    )
    row = terminal.getvalue().splitlines()[-2]
    assert len(row) <= 60
    assert "t_" + "a" * 22 in row
    assert "x…" in row
    assert "input_required" in row
