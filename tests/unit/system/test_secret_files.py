"""Files with secrets that others of the machine may read: refused, but on mounts of their own."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.certificates import Authority
from taskgate.auth.key_file import KeyFileRefused, read_keys
from taskgate.config.document import expand
from taskgate.listener.tls import TlsRefused, TlsSettings, made_context
from taskgate.system.secret_files import is_exposed
from taskgate.upstream.settings import UpstreamTls
from taskgate.upstream.wire.trust import TlsFileRefused, tls_context
from taskgate.wiring.observability import read_pem

KEY = b"b" * 43 + b"\n"


@pytest.mark.parametrize(
    ("mode", "exposed"), [(0o600, False), (0o640, False), (0o751, False), (0o644, True), (0o604, True), (0o602, True)]
)
def test_what_others_may_read_or_write_is_exposed(mode: int, exposed: bool) -> None:
    assert is_exposed(Path("/etc/taskgate/key"), mode, "a key") is exposed


@pytest.mark.parametrize(
    ("mounts", "exposed"),
    [
        ({"/run/secrets"}, False),
        ({"/run/secrets/key"}, False),
        ({"/run", "/"}, True),
        (set(), True),
    ],
    ids=["a mount of secrets", "a file that is mounted", "a machine's own mounts", "no mount"],
)
def test_on_a_mount_of_its_own_it_is_a_note_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mounts: set[str], exposed: bool
) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) in mounts)
    with caplog.at_level(logging.INFO):
        assert is_exposed(Path("/run/secrets/key"), 0o444, "auth.context.key_file") is exposed
    assert [record.__dict__["key"] for record in caplog.records] == ([] if exposed else ["auth.context.key_file"])


def test_the_root_is_no_mount_of_its_own() -> None:
    assert is_exposed(Path("/key"), 0o644, "a key")


def by_keys(place: Path) -> str:
    place.write_bytes(KEY)
    place.chmod(0o644)
    with pytest.raises(KeyFileRefused) as refused:
        read_keys(place)
    return str(refused.value)


def by_pem(place: Path) -> str:
    place.write_bytes(KEY)
    place.chmod(0o644)
    with pytest.raises(KeyFileRefused) as refused:
        read_pem(place)
    return str(refused.value)


def by_reference(place: Path) -> str:
    place.write_bytes(KEY)
    place.chmod(0o644)
    found = expand(f"${{file:{place}}}", {})
    assert found.text == ""
    return found.problems[0]


def by_tls_of_hosts(place: Path) -> str:
    pair = Authority(place.parent).issue("localhost")
    pair.key_file.chmod(0o644)
    with pytest.raises(TlsRefused) as refused:
        made_context(TlsSettings(cert_file=pair.cert_file, key_file=pair.key_file))
    return str(refused.value)


def by_tls_of_servers(place: Path) -> str:
    pair = Authority(place.parent).issue("localhost")
    pair.key_file.chmod(0o644)
    with pytest.raises(TlsFileRefused) as refused:
        tls_context(UpstreamTls(cert_file=pair.cert_file, key_file=pair.key_file))
    return str(refused.value)


@pytest.mark.requirement("T25")
@pytest.mark.parametrize("read", [read_keys, read_pem])
def test_a_key_that_another_user_can_replace_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], object]
) -> None:
    place = tmp_path / "key"
    place.write_bytes(KEY)
    place.chmod(0o600)
    # Only root may give a file away, so the process has another user here.
    if os.geteuid() == 0:
        os.chown(place, 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
    with pytest.raises(KeyFileRefused, match="belongs to another user of this machine, who can replace it: chown it"):
        read(place)
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path)
    assert read(place)


@pytest.mark.requirement("T25")
@pytest.mark.parametrize("read", [by_keys, by_pem, by_reference, by_tls_of_hosts, by_tls_of_servers])
def test_whatever_reads_a_secret_refuses_one_that_others_may_read(tmp_path: Path, read: Callable[[Path], str]) -> None:
    told = read(tmp_path / "secret")
    assert "may be read or written by every user of this machine: chmod o-rwx it" in told
    assert KEY.decode().strip() not in told
