"""From the configuration to the settings of the audit log: keys, places, and what is left out."""

import logging
import socket
from base64 import urlsafe_b64encode
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from helpers.manual_clock import SeededEntropy
from taskgate.auth.key_file import KeyFileRefused
from taskgate.config import GatewayConfig
from taskgate.telemetry.auditlog.settings import AuditSettings, ChainSettings, LineOptions, SinkSettings
from taskgate.wiring.observability import audit_settings

KEY = b"k" * 32
Means = Callable[..., AuditSettings]


def configured(**event_sink: object) -> GatewayConfig:
    written = {
        "version": 1,
        "auth": {"mode": "none"},
        "upstreams": {"reports": {"path": "/reports/mcp", "url": "http://127.0.0.1:3000/mcp"}},
        "audit": event_sink,
    }
    return GatewayConfig.model_validate(written)


@pytest.fixture
def means(tmp_path: Path) -> Means:
    """The settings that keys of `audit` mean, with a data directory."""

    def settings(
        *, before: AuditSettings | None = None, directory: Path | None = tmp_path, **event_sink: object
    ) -> AuditSettings:
        return audit_settings(configured(**event_sink), directory, SeededEntropy(), before=before)

    return settings


def test_a_log_as_usual_is_in_the_data_directory_and_its_checkpoints_on_standard_output(
    means: Means, tmp_path: Path
) -> None:
    found = means()
    assert found.sinks == (
        SinkSettings(name="file", path=tmp_path / "audit.jsonl", was_named=False),
        SinkSettings(name="stdout", path=None, events=("audit.checkpoint",), rotate_size=None, keep=1, fsync="never"),
    )
    assert found == AuditSettings(sinks=found.sinks, key=found.key, node=socket.gethostname())
    assert (found.line_options, found.chain) == (LineOptions(), ChainSettings())


def test_what_is_written_is_what_the_log_is_made_with(means: Means, tmp_path: Path) -> None:
    found = means(
        format="ecs",
        events=["task.*"],
        identity="pseudonymous",
        arguments="full",
        results="hash",
        redact=["$.a"],
        chain={"checkpoint_events": 7, "checkpoint_interval": "9s"},
        sinks=[
            {
                "name": "a",
                "type": "file",
                "path": "/var/log/a",
                "rotate": {"size": "1MiB", "keep": 2},
                "fsync": "always",
            },
            {"name": "b", "type": "file", "rotate": None, "fsync": "never"},
        ],
        queue=99,
        on_full="deny",
        block_timeout="3s",
    )
    assert found == AuditSettings(
        sinks=(
            SinkSettings(name="a", path=Path("/var/log/a"), rotate_size=2**20, keep=2, fsync="always"),
            SinkSettings(
                name="b", path=tmp_path / "audit.jsonl", rotate_size=None, keep=1, fsync="never", was_named=False
            ),
        ),
        key=found.key,
        node=found.node,
        line_options=LineOptions(
            format="ecs", identity="pseudonymous", arguments="full", results="hash", redact=("$.a",)
        ),
        events=("task.*",),
        chain=ChainSettings(checkpoint_events=7, checkpoint_interval=timedelta(seconds=9)),
        queue=99,
        on_full="deny",
        block_timeout=timedelta(seconds=3),
    )


def test_a_key_is_made_once_for_its_owner_alone(means: Means, tmp_path: Path) -> None:
    found = means()
    assert means() == found
    assert (tmp_path / "audit.key").stat().st_mode & 0o777 == 0o600
    assert means(before=found).key == found.key


def test_no_key_is_made_for_a_log_that_has_one(means: Means, tmp_path: Path) -> None:
    """What was written could not be checked with another."""
    found = means()
    (tmp_path / "audit.key").unlink()
    with pytest.raises(KeyFileRefused, match=r"^audit\.key in the data directory: the key file cannot be read"):
        means(before=found)
    assert means(before=means(enabled=False)).key


def test_a_key_that_is_named_is_read(means: Means, tmp_path: Path) -> None:
    file = tmp_path / "named"
    with pytest.raises(KeyFileRefused, match=r"^audit\.hmac_key_file: "):
        means(hmac_key_file=str(file))
    file.write_bytes(urlsafe_b64encode(KEY))
    assert means(hmac_key_file=str(file)).key == KEY


def test_the_key_that_signs_is_read_and_looked_at(means: Means, tmp_path: Path) -> None:
    file = tmp_path / "sign.pem"
    chain = {"sign_key_file": str(file)}
    with pytest.raises(KeyFileRefused, match=r"^audit\.chain\.sign_key_file: cannot be read: No such file"):
        means(chain=chain)
    file.write_bytes(b"no key")
    with pytest.raises(KeyFileRefused, match=r"^audit\.chain\.sign_key_file: must hold a private key"):
        means(chain=chain)
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(pem)
    assert means(chain=chain).chain.signing_key == pem


def test_a_log_that_is_off_has_no_sinks_and_makes_no_key(means: Means, tmp_path: Path) -> None:
    found = means()
    (tmp_path / "audit.key").unlink()
    off = means(enabled=False)
    assert off.sinks == ()
    assert not list(tmp_path.iterdir())
    assert means(enabled=False, before=found).key == found.key


def test_without_a_data_directory_there_is_no_file_and_the_key_lasts_as_long_as_the_process(
    means: Means, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = means(directory=None)
    assert [sink.name for sink in found.sinks] == ["stdout"]
    assert "an audit sink is skipped: it has no path and there is no data directory" in caplog.messages
    assert means(directory=None, before=found) == found


def test_no_key_is_in_what_is_shown_of_the_settings(means: Means, tmp_path: Path) -> None:
    file = tmp_path / "named"
    file.write_bytes(urlsafe_b64encode(KEY))
    found = means(hmac_key_file=str(file))
    pem = ChainSettings(signing_key=b"-----BEGIN PRIVATE KEY-----")
    shown = f"{found} {found!r} {pem} {pem!r}"
    assert "kkkk" not in shown
    assert "PRIVATE" not in shown
