"""Where files without a configured path live."""

import os
from pathlib import Path

import pytest

from requirements import covers
from taskgate.config import ConfigurationError, expect_data_directory, open_data_directory


@pytest.mark.parametrize(
    ("environ", "directory"),
    [
        ({"TASKGATE_DATA_DIR": "/a", "STATE_DIRECTORY": "/b", "XDG_DATA_HOME": "/c", "HOME": "/d"}, "a"),
        ({"TASKGATE_DATA_DIR": "", "STATE_DIRECTORY": "/b", "XDG_DATA_HOME": "/c", "HOME": "/d"}, "b"),
        ({"STATE_DIRECTORY": "/b:/bb", "HOME": "/d"}, "b"),
        ({"XDG_DATA_HOME": "/c", "HOME": "/d"}, "c/taskgate"),
        ({"XDG_DATA_HOME": "relative", "HOME": "/d"}, "d/.local/share/taskgate"),
        ({"XDG_DATA_HOME": "", "HOME": "/d"}, "d/.local/share/taskgate"),
    ],
    ids=["ours", "systemd", "systemd-list", "xdg", "xdg-relative", "home"],
)
def test_the_environment_names_the_place(tmp_path: Path, environ: dict[str, str], directory: str) -> None:
    below = {name: value.replace("/", f"{tmp_path}/", 1) for name, value in environ.items()}
    assert open_data_directory(below) == tmp_path / directory


def test_a_missing_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    made = open_data_directory({"XDG_DATA_HOME": str(tmp_path / "a")})
    assert made == tmp_path / "a" / "taskgate"
    assert made.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    assert open_data_directory({"TASKGATE_DATA_DIR": str(tmp_path)}) == tmp_path
    assert tmp_path.stat().st_mode & 0o777 == 0o750


@covers("T25")
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o770, 0o2775, 0o1777, 0o702])
def test_a_directory_in_which_others_may_replace_keys_is_refused(tmp_path: Path, mode: int) -> None:
    place = tmp_path / "data"
    place.mkdir()
    place.chmod(mode)
    for look in (open_data_directory, expect_data_directory):
        with pytest.raises(ConfigurationError) as refused:
            look({"TASKGATE_DATA_DIR": str(place)})
        assert str(refused.value) == (
            f"TASKGATE_DATA_DIR: the data directory {place} may be written by other users of this machine, "
            "who can replace the keys in it: chmod go-w it"
        )


@covers("T25")
def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only root may give a folder away, so the process has another user here.
    if os.geteuid() == 0:
        os.chown(tmp_path, 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
    with pytest.raises(ConfigurationError) as refused:
        open_data_directory({"TASKGATE_DATA_DIR": str(tmp_path)})
    assert "belongs to another user of this machine, who can replace it: chown it" in str(refused.value)


def test_a_volume_of_a_container_is_accepted_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As Kubernetes makes them, for a group of the pod. Tests cannot mount.
    tmp_path.chmod(0o2775)
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path)
    assert open_data_directory({"TASKGATE_DATA_DIR": str(tmp_path)}) == tmp_path
    below = tmp_path / "below"
    below.mkdir()
    below.chmod(0o777)
    with pytest.raises(ConfigurationError):
        open_data_directory({"TASKGATE_DATA_DIR": str(below)})


def test_a_directory_that_cannot_be_made_is_told_by_the_variable_that_named_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for variable, place in (("TASKGATE_DATA_DIR", "file"), ("STATE_DIRECTORY", "file/below")):
        with pytest.raises(ConfigurationError) as refused:
            open_data_directory({variable: str(tmp_path / place)})
        assert str(refused.value).startswith(f"{variable}: the data directory {tmp_path / place} cannot be made: ")


def test_a_directory_without_permission_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Asked of the system by its own call, because root may write anywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ConfigurationError) as refused:
        open_data_directory({"HOME": str(tmp_path)})
    place = tmp_path / ".local" / "share" / "taskgate"
    assert str(refused.value) == f"HOME: the data directory {place} cannot be written: no permission"
