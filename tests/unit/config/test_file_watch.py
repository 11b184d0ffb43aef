"""A file that was put in the place of another is seen, however that was done; one that is away for a moment is not."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from taskgate.config.file_watch import FileWatch, stamp_of


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def rewritten(file: Path) -> None:
    """In place, longer, and with its time."""
    before = file.stat()
    file.write_text("one two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def as_long(file: Path) -> None:
    """In place, as long as before and later."""
    before = file.stat()
    file.write_text("two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


def renamed(file: Path) -> None:
    """By another with its size and its time."""
    before = file.stat()
    other = write(file.parent / "other", "two")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)


@pytest.mark.parametrize("change", [rewritten, as_long, renamed])
def test_a_change_is_told_once(tmp_path: Path, change: Callable[[Path], None]) -> None:
    file = write(tmp_path / "taskgate.yaml", "one")
    watch = FileWatch(file)
    assert not watch.has_changed()
    change(file)
    assert (watch.has_changed(), watch.has_changed()) == (True, False)


def test_a_folder_that_a_link_is_turned_to_is_seen(tmp_path: Path) -> None:
    """So Kubernetes changes a ConfigMap: the file is a link through `..data`, which is turned to another folder."""
    written = [write(tmp_path / name / "taskgate.yaml", "one") for name in ("first", "second")]
    for file in written:
        os.utime(file, ns=(1, 1))
    (tmp_path / "..data").symlink_to("first")
    (tmp_path / "taskgate.yaml").symlink_to("..data/taskgate.yaml")
    watch = FileWatch(tmp_path / "taskgate.yaml")
    (tmp_path / "turned").symlink_to("second")
    (tmp_path / "turned").replace(tmp_path / "..data")
    assert (watch.has_changed(), watch.has_changed()) == (True, False)


def test_a_file_that_is_away_is_no_news_and_what_comes_back_is(tmp_path: Path) -> None:
    file = write(tmp_path / "taskgate.yaml", "one")
    watch = FileWatch(file)
    file.unlink()
    assert not watch.has_changed()
    write(file, "one two")
    assert watch.has_changed()


def test_a_file_that_was_never_there_is_news_when_it_is(tmp_path: Path) -> None:
    watch = FileWatch(tmp_path / "taskgate.yaml")
    write(tmp_path / "taskgate.yaml", "one")
    assert watch.has_changed()


def test_links_in_a_circle_are_no_news(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert not FileWatch(tmp_path / "a").has_changed()


def test_further_files_are_watched_from_before_they_were_read(tmp_path: Path) -> None:
    config, key = (write(tmp_path / name, "one") for name in ("taskgate.yaml", "key"))
    watch, before = FileWatch(config), stamp_of(key)
    as_long(key)
    watch.follow({key: before})
    assert (watch.has_changed(), watch.has_changed()) == (True, False)
    watch.follow({key: before})
    assert not watch.has_changed(), "what was seen is not news again"
    watch.follow({})
    as_long(key)
    assert not watch.has_changed()
    as_long(config)
    assert watch.has_changed()
