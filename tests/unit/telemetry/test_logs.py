"""What a log line says, and above all what it does not."""

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import taskgate
from taskgate.config.fields import read_size
from taskgate.telemetry import logs

Lines = Callable[[], list[dict[str, Any]]]

_own = logging.getLogger("taskgate.test")
_foreign = logging.getLogger("library.inner")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where JSON lines from `debug` up go while the test runs."""
    written = io.StringIO()
    logs.configure("debug", "json", written)
    yield written
    logs.unconfigure()


@pytest.fixture
def lines(stream: io.StringIO) -> Lines:
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_says_when_how_bad_where_and_what(lines: Lines) -> None:
    before = datetime.now(UTC)
    _own.warning("task %s of %d", "x", 3, extra={"upstream": "reports", "count": 2})
    [line] = lines()
    assert list(line) == ["time", "level", "logger", "event", "upstream", "count"]
    assert line["time"].endswith("Z")
    assert before - timedelta(milliseconds=1) <= datetime.fromisoformat(line.pop("time")) <= datetime.now(UTC)
    assert line == {
        "level": "warning",
        "logger": "taskgate.test",
        "event": "task x of 3",
        "upstream": "reports",
        "count": 2,
    }


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
@pytest.mark.unheard("the level of our loggers is what it is about")
def test_nothing_below_the_level_is_written(level: str, expected: list[str]) -> None:
    written = io.StringIO()
    logs.configure(level, "json", written)
    try:
        for each in ("debug", "info", "warning", "error"):
            getattr(_own, each)("happened")
    finally:
        logs.unconfigure()
    assert [json.loads(line)["level"] for line in written.getvalue().splitlines()] == expected


def test_the_words_of_a_library_are_withheld_and_only_its_warnings_mentioned(lines: Lines, stream: io.StringIO) -> None:
    _foreign.info("token hunter2")
    assert lines() == []
    try:
        raise ValueError("hunter2")
    except ValueError:
        _foreign.error("failed with hunter2 %s", "hunter2", exc_info=True, extra={"password": "hunter2"})
    logging.getLogger("taskgatekeeper").warning("hunter2")
    first, second = lines()
    assert first.pop("time")
    assert first == {
        "level": "error",
        "logger": "library.inner",
        "event": "a library reported something; its words are withheld",
        "exception": "ValueError",
    }
    assert second["event"] == first["event"]
    assert "hunter2" not in stream.getvalue()


def _chain() -> None:
    try:
        raise KeyError("hunter2")
    except KeyError as cause:
        raise ExceptionGroup("hunter2", [OSError("hunter2"), ValueError("hunter2")]) from cause


def test_of_an_exception_there_is_its_class_its_causes_and_our_own_places(lines: Lines, stream: io.StringIO) -> None:
    try:
        read_size("hunter2")
    except ValueError:
        _own.exception("failed")
    try:
        _chain()
    except ExceptionGroup:
        _own.exception("failed")
    try:
        try:
            raise KeyError("hunter2")
        except KeyError:
            raise RuntimeError("hunter2") from None
    except RuntimeError as error:
        _own.error("failed", exc_info=error, extra={"error": error})
    ours, group, suppressed = lines()
    assert ours["exception"] == "ValueError"
    assert "causes" not in ours
    assert [place.partition(":")[0] for place in ours["at"]] == ["config/fields.py"] * 2
    assert (group["exception"], group["causes"]) == ("ExceptionGroup", ["KeyError", "OSError", "ValueError"])
    assert "at" not in group
    assert (suppressed["exception"], suppressed["error"]) == ("RuntimeError", "RuntimeError")
    assert "causes" not in suppressed
    assert "hunter2" not in stream.getvalue()


def test_of_many_places_the_innermost_are_shown(lines: Lines) -> None:
    made_up = compile(
        "def fall(depth):\n    if depth:\n        fall(depth - 1)\n    raise ValueError",
        str(Path(taskgate.__file__).with_name("made_up.py")),
        "exec",
    )
    names: dict[str, Any] = {}
    exec(made_up, names)
    try:
        names["fall"](9)
    except ValueError:
        _own.exception("failed")
    [line] = lines()
    assert line["at"] == ["made_up.py:3"] * 7 + ["made_up.py:4"]


def test_exceptions_that_go_in_circles_or_on_for_long_are_cut(lines: Lines) -> None:
    error: BaseException = ValueError()
    error.__context__ = KeyError()
    error.__context__.__context__ = error
    _own.error("circle", exc_info=error)
    _own.error("none", exc_info=True)
    circle, none = lines()
    assert len(circle["causes"]) == 7
    assert "exception" not in none


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (2**64 - 1, 2**64 - 1),
        (2**64, "int"),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ("a\nb", "a\nb"),
        ("x" * 3000, "x" * 2048 + "…"),
        (timedelta(seconds=90), 90.0),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        ({"a": (1, {2: [3]})}, {"a": [1, {"2": [3]}]}),
        ([[[[[1]]]]], [[[["list"]]]]),
        ({"a": {"b": {"c": {"d": {}}}}}, {"a": {"b": {"c": {"d": "dict"}}}}),
        (ValueError("hunter2"), "ValueError"),
        (Path("/secret"), "PosixPath"),
        (b"hunter2", "bytes"),
        pytest.param(object(), "object", id="object"),
    ],
    ids=lambda each: repr(each)[:30],
)
def test_a_field_is_shown_as_json_may_hold_it_and_an_unknown_one_as_its_class(
    lines: Lines, value: Any, shown: Any
) -> None:
    _own.info("a field", extra={"field": value})
    assert [line["field"] for line in lines()] == [shown]


def test_fields_named_as_ours_are_moved_aside(lines: Lines) -> None:
    _own.info("said", extra={"time": 1, "level": 2, "logger": 3, "at": 4})
    [line] = lines()
    assert line["event"] == "said"
    assert {key: line[key] for key in ("time_", "level_", "logger_", "at_")} == {
        "time_": 1, "level_": 2, "logger_": 3, "at_": 4,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("message", "args", "event"),
    [
        ("%(a)s", ({"a": "b"},), "b"),
        ("%d", ("no number",), "%d"),
        ("%c", (2**40,), "%c"),
        ("%(a)s", ({"b": 1},), "%(a)s"),
        ("%s %s", ("one",), "%s %s"),
        ("%s", (ValueError("hunter2"),), "ValueError"),
        (ValueError("hunter2"), (), "ValueError"),
        ("%s", ("x" * 3000,), "x" * 2048),
        (7, (), "7"),
    ],
    ids=lambda each: repr(each)[:30],
)
def test_an_event_is_its_text_even_where_the_arguments_do_not_fit(
    message: Any, args: tuple[Any, ...], event: str
) -> None:
    written = io.StringIO()
    # Here and not in a fixture: pytest's own handlers, which come back between the two, raise.
    logs.configure("info", "json", written)
    try:
        _own.info(message, *args)
    finally:
        logs.unconfigure()
    assert json.loads(written.getvalue())["event"] == event


def test_a_stream_that_fails_loses_the_line_and_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    closed = io.StringIO()
    closed.close()
    logs.configure("info", "json", closed)
    _own.error("hunter2")
    logs.unconfigure()
    assert capsys.readouterr() == ("", "")


def test_what_was_there_before_is_put_back() -> None:
    root = logging.getLogger()
    before = (root.level, root.handlers[:])
    logs.unconfigure()
    logs.configure("error", "json", sys.stderr)
    logs.configure("debug", "console", sys.stderr)
    assert len(root.handlers) == 1
    assert root.handlers != before[1]
    logs.unconfigure()
    assert (root.level, root.handlers) == before
