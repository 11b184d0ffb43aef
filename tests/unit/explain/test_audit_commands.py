"""`taskgate audit`: what an operator reads, and with which status it ends."""

import json
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from taskgate.cli import main
from taskgate.telemetry.auditlog.formats.digests import task_ref
from taskgate.telemetry.auditlog.settings import ChainSettings, SinkSettings
from unit.telemetry.auditlog.logs_on_disk import KEY, keep, many, settings, to_file, turns
from unit.telemetry.auditlog.logs_on_disk import opened as log_opened


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The file with the log's key."""
    file = tmp_path / "audit.key"
    file.write_bytes(urlsafe_b64encode(KEY) + b"\n")
    file.chmod(0o600)
    return file


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, words)])


async def kept(folder: Path, **changes: Any) -> Path:
    """A log of five lines, and one more sink with its checkpoints."""
    other = SinkSettings(name="other", path=folder / "other", events=("audit.checkpoint",))
    await keep(settings(to_file(folder), other, **changes), many(3))
    return folder / "audit.jsonl"


async def test_a_log_that_is_intact_ends_with_0(tmp_path: Path, key: Path) -> None:
    file = await kept(tmp_path)
    done = run("verify", file, "--key", key, "--checkpoint", tmp_path / "other", "--expect-seq", 5)
    assert (done.exit_code, done.output) == (0, "intact: 5 lines, 1 to 5 of the chain of file on gw-1, in 1 file\n")


async def test_what_was_not_looked_at_is_said(tmp_path: Path) -> None:
    done = run("verify", await kept(tmp_path))
    assert done.exit_code == 0
    assert [line.partition(":")[0] for line in done.output.splitlines()] == ["not checked", "not checked", "intact"]


async def test_a_log_that_was_changed_ends_with_1_and_says_where(tmp_path: Path, key: Path) -> None:
    file = await kept(tmp_path)
    file.write_bytes(file.read_bytes().replace(b'"gateway.started"', b'"gateway.stopped"', 1))
    done = run("verify", file, "--key", key, "--expect-seq", 5)
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        f"{file}:2: was changed, or the line after it was",
        "NOT INTACT: 1 findings; 5 lines, 1 to 5 of the chain of file on gw-1, in 1 file",
    ]


async def test_a_log_that_was_cut_off_is_told_by_the_other_sink_and_by_a_number(tmp_path: Path, key: Path) -> None:
    file = await kept(tmp_path)
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]))
    assert run("verify", file, "--key", key).exit_code == 0
    for more in (("--checkpoint", tmp_path / "other"), ("--expect-seq", 5)):
        assert run("verify", file, "--key", key, *more).exit_code == 1


async def test_files_are_one_log_whatever_their_order(tmp_path: Path, key: Path) -> None:
    async with log_opened(settings(to_file(tmp_path, rotate_size=3000, keep=9))) as log:
        for _ in range(5):
            before = log.sequences()["file",]
            for event in many(6):
                log.emit(event)
            await turns(lambda before=before: log.sequences()["file",] >= before + 6)
    given = sorted(tmp_path.glob("audit.jsonl*"))
    assert len(given) > 3
    done = run("verify", *given, "--key", key, "--expect-seq", 1)
    assert done.exit_code == 0
    head = tmp_path / "audit.jsonl.head"
    assert done.output.splitlines()[:-1] == [f"not read: {head} stands beside a log and is none"]
    given.remove(tmp_path / "audit.jsonl.000000000001")
    done = run("verify", *given, "--key", key)
    assert done.exit_code == 0
    assert "of the chain are not in these files" in done.output


async def test_a_file_between_others_that_is_not_given_is_missed(tmp_path: Path) -> None:
    file = await kept(tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    for name, part in (("a", lines[:2]), ("b", lines[3:])):
        (tmp_path / name).write_bytes(b"".join(part))
    done = run("verify", tmp_path / "b", tmp_path / "a")
    assert done.exit_code == 1
    assert f"{tmp_path / 'b'}:1: lines 3 to 3 of the chain are missing before it" in done.output


async def test_only_so_many_findings_are_told_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"no\n" * 60)
    done = run("verify", tmp_path / "log")
    assert done.exit_code == 1
    assert "and 11 more findings" in done.output
    assert done.output.splitlines()[-1] == "NOT INTACT: 61 findings; no lines, in 1 file"


async def test_a_signature_of_a_private_key_is_checked_with_either_half(tmp_path: Path, key: Path) -> None:
    signing = Ed25519PrivateKey.generate()
    private = signing.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = signing.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    file = await kept(tmp_path, chain=ChainSettings(signing_key=private))
    for number, pem in enumerate((private, public)):
        named = tmp_path / f"{number}.pem"
        named.write_bytes(pem)
        assert run("verify", file, "--key", named, "--expect-seq", 1).output.startswith("intact")
    done = run("verify", file, "--key", key)
    assert done.exit_code == 1
    assert "which is not among the given keys" in done.output


@pytest.mark.parametrize(
    "text", [b"no key", b"-----BEGIN PUBLIC KEY-----\nno\n-----END PUBLIC KEY-----\n", b"x" * 20_000]
)
async def test_a_key_that_is_none_ends_with_2(tmp_path: Path, text: bytes) -> None:
    named = tmp_path / "key"
    named.write_bytes(text)
    done = run("verify", await kept(tmp_path), "--key", named)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{named}: ")


async def test_a_file_that_cannot_be_read_ends_with_2(tmp_path: Path) -> None:
    for words in (
        ("verify", tmp_path / "no"),
        ("verify", await kept(tmp_path), "--key", tmp_path / "no"),
        ("verify", tmp_path / "audit.jsonl", "--checkpoint", tmp_path / "no"),
        ("ref", "task", "--key", tmp_path / "no"),
    ):
        done = run(*words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"{tmp_path / 'no'}: ")


def test_the_reference_of_a_task_is_that_of_the_log_under_each_key(key: Path) -> None:
    assert run("ref", "task-id", "--key", key).output == f"{task_ref(KEY, 'task-id')}\n"
    key.write_bytes(urlsafe_b64encode(b"n" * 32) + b"\n" + urlsafe_b64encode(KEY) + b"\n")
    assert run("ref", "task-id", "--key", key).output == (
        f"{task_ref(b'n' * 32, 'task-id')}\n{task_ref(KEY, 'task-id')}\n"
    )


def test_the_schema_of_lines_is_printed() -> None:
    done = run("schema")
    assert done.exit_code == 0
    assert "properties" in json.loads(done.output)
