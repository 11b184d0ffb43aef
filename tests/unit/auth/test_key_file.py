"""The key of auth contexts: made once for its owner alone, read whole or not at all, and never told."""

import logging
import os
import threading
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from helpers.manual_clock import SeededEntropy
from taskgate.auth.key_file import DeploymentKeys, KeyFileRefused, read_keys, read_or_make_keys

FIRST, SECOND = bytes(range(32)), bytes(range(200, 240))
# The second has padding, and letters of base64url that base64 does not have.
LINES = [urlsafe_b64encode(key) for key in (FIRST, SECOND)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "context.key"


def written(file: Path, text: bytes, mode: int = 0o600) -> Path:
    file.write_bytes(text)
    file.chmod(mode)
    return file


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        pytest.param(LINES[0] + b"\n", (FIRST, None), id="one"),
        pytest.param(LINES[0], (FIRST, None), id="one without an end"),
        pytest.param(LINES[0].rstrip(b"="), (FIRST, None), id="one without padding"),
        pytest.param(b"\n  " + LINES[0] + b" \r\n\n", (FIRST, None), id="one with space around it"),
        pytest.param(LINES[0] + b"\n" + LINES[1] + b"\n", (FIRST, SECOND), id="two"),
        pytest.param(LINES[1] + b"\r\n" + LINES[0], (SECOND, FIRST), id="two, the other way"),
    ],
)
def test_a_file_holds_the_present_key_and_then_the_one_it_replaces(
    file: Path, text: bytes, keys: tuple[bytes, bytes | None]
) -> None:
    assert read_keys(written(file, text)) == DeploymentKeys(*keys)


COUNT = "the key file must hold one key, or two of which the first is the present one"
LETTERS = "a key must be base64url of at least 32 bytes"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(b"", COUNT, id="nothing"),
        pytest.param(b"\n \n", COUNT, id="empty lines"),
        pytest.param(b"\n".join([LINES[0]] * 3), COUNT, id="three"),
        pytest.param(LINES[0] + b"\n" * 4096, COUNT, id="too long"),
        pytest.param(urlsafe_b64encode(FIRST[:31]), LETTERS, id="31 bytes"),
        pytest.param(LINES[0] + b"\n" + urlsafe_b64encode(FIRST[:31]), LETTERS, id="31 bytes in the second"),
        pytest.param(b"A" * 45, LETTERS, id="a letter too many"),
        pytest.param(b"/" * 44, LETTERS, id="base64 of the other kind"),
        pytest.param(b"A" * 44 + b"===", LETTERS, id="padding without end"),
        pytest.param(b"A" * 20 + b"=" + b"A" * 24, LETTERS, id="padding in the middle"),
        pytest.param(b"key: " + LINES[0], LETTERS, id="a name before it"),
        pytest.param("é".encode() * 32, LETTERS, id="no ASCII"),
        pytest.param(bytes(range(128, 160)), LETTERS, id="bytes as they are"),
    ],
)
def test_a_file_that_holds_anything_else_is_refused_without_a_word_of_what_it_holds(
    file: Path, text: bytes, told: str
) -> None:
    with pytest.raises(KeyFileRefused) as refused:
        read_keys(written(file, text))
    assert str(refused.value) == told
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_a_file_that_cannot_be_read_is_refused_with_the_systems_reason(file: Path) -> None:
    with pytest.raises(KeyFileRefused, match=r"^the key file cannot be read: No such file or directory$"):
        read_keys(file)
    with pytest.raises(KeyFileRefused, match=r"^the key file cannot be read: Is a directory$"):
        read_keys(file.parent)


@pytest.mark.parametrize(("mode", "refused"), [(0o600, False), (0o640, False), (0o644, True), (0o604, True)])
def test_a_key_that_everybody_may_read_is_refused(file: Path, mode: int, refused: bool) -> None:
    written(file, LINES[0], mode)
    if refused:
        with pytest.raises(KeyFileRefused, match=r"^the key file may be read or written by every user"):
            read_keys(file)
    else:
        assert read_keys(file).current


def test_a_key_is_made_for_its_owner_alone_and_is_the_same_from_then_on(file: Path) -> None:
    made = read_or_make_keys(file, SeededEntropy(1))
    assert made == DeploymentKeys(SeededEntropy(1).token(32), None)
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_or_make_keys(file, SeededEntropy(2)) == made
    assert os.listdir(file.parent) == [file.name]


def test_a_folder_that_is_missing_is_made_too_for_the_owner_alone(tmp_path: Path) -> None:
    read_or_make_keys(tmp_path / "data" / "context.key", SeededEntropy())
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_no_chance_is_used_where_a_key_is_there(file: Path) -> None:
    class NoMore(SeededEntropy):
        def token(self, count: int) -> bytes:
            raise AssertionError

    assert read_or_make_keys(written(file, LINES[0]), NoMore()) == DeploymentKeys(FIRST, None)


def test_a_file_that_is_there_is_never_written(file: Path) -> None:
    with pytest.raises(KeyFileRefused, match=COUNT):
        read_or_make_keys(written(file, b""), SeededEntropy())
    assert file.read_bytes() == b""


def test_of_many_that_make_it_at_once_all_get_the_same_key(file: Path) -> None:
    found: list[DeploymentKeys] = []
    together = threading.Barrier(8)

    class Together(SeededEntropy):
        def token(self, count: int) -> bytes:
            together.wait(10)
            return super().token(count)

    threads = [
        threading.Thread(target=lambda number=number: found.append(read_or_make_keys(file, Together(number))))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert found == [read_keys(file)] * 8
    assert os.listdir(file.parent) == [file.name]


def test_where_no_file_can_be_made_the_systems_reason_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(KeyFileRefused, match=r"^the key file cannot be made: (Not a directory|File exists)$"):
        read_or_make_keys(tmp_path / "file" / "context.key", SeededEntropy())


def test_a_disk_that_is_full_leaves_no_file_that_would_be_refused_next_time(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(KeyFileRefused, match=r"^the key file cannot be made: No space left on device$"):
            read_or_make_keys(file, SeededEntropy(1))
    assert os.listdir(file.parent) == []
    assert read_or_make_keys(file, SeededEntropy(2)).current == SeededEntropy(2).token(32)


def test_the_log_calls_a_key_by_what_it_is_for(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(file, LINES[0], 0o644)
    monkeypatch.setattr(os.path, "ismount", lambda path: path == file)
    with caplog.at_level(logging.INFO):
        read_keys(file, of="the audit log")
        read_or_make_keys(file, SeededEntropy(), of="the audit log")
    assert [record.__dict__["key"] for record in caplog.records] == ["the key of the audit log"] * 2
