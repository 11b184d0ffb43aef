"""Relative paths belong to the file that has them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from taskgate.config import GatewayConfig, effective, load

Loads = Callable[..., GatewayConfig]


def test_where_taskgate_starts_does_not_matter(
    tmp_path: Path, file: Path, minimal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(minimal + "store: {sqlite: {path: tasks.db}}\n")
    found = set()
    for folder, name in ((tmp_path, "taskgate.yaml"), (tmp_path.parent, f"{tmp_path.name}/taskgate.yaml")):
        monkeypatch.chdir(folder)
        found.add(load(Path(name), {}).store.sqlite.path)
    assert found == {tmp_path / "tasks.db"}


def test_what_is_written_back_means_the_same_in_another_folder(loads: Loads, tmp_path: Path, minimal: str) -> None:
    config = loads(minimal + "store: {sqlite: {path: tasks.db}}\n")
    other = tmp_path / "other" / "taskgate.yaml"
    other.parent.mkdir()
    other.write_text(effective(config))
    assert load(other, {}) == config
