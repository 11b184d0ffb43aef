"""The files of TLS while the listener is open: what a new pair changes, and what a broken one does not."""

import asyncio
import logging
import os
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.certificates import Authority, put, serial
from helpers.host.raw import post
from helpers.waiting import eventually
from taskgate.listener.tls import Certificates, TlsSettings
from unit.listener.gate import Gate
from unit.listener.secure import Papers, papers

SELDOM = timedelta(minutes=1)

NOT_USED = ("WARNING", "the new certificate was rejected; the old one stays in use")
USED = ("INFO", "the new certificate is in use")


@pytest.fixture
def made(tmp_path: Path) -> Papers:
    return papers(tmp_path)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What the listener has logged, but for what is for developers."""
    return [(each.levelname, each.getMessage()) for each in caplog.records if each.name == "taskgate.listener"]


async def looks(certificates: Certificates, times: int = 1) -> None:
    """Let the time pass in which the files are looked at so often."""
    certificates.watch()
    await asyncio.sleep((times + 0.5) * SELDOM.total_seconds())
    certificates.close()


async def shown(made: Papers, gate: Gate) -> int:
    """The serial number of the certificate that a new connection is shown."""
    async with made.host(gate) as host:
        assert (await host.ask(post())).status == 200
        number: int = host.serial
        return number


async def test_a_new_pair_is_shown_to_new_connections_and_open_ones_go_on(
    made: Papers, caplog: pytest.LogCaptureFixture
) -> None:
    first = serial(made.cert_file.read_bytes())
    async with made.opened() as gate, made.host(gate) as old:
        assert (await old.ask(post())).status == 200
        second = made.renew()
        await eventually(lambda: USED in told(caplog))
        assert await shown(made, gate) == second
        assert (await old.ask(post())).status == 200
        assert old.serial == first
    assert told(caplog).count(USED) == 1


async def test_no_request_fails_while_pairs_change(made: Papers) -> None:
    statuses: list[int] = []
    serials: set[int] = set()
    done = asyncio.Event()

    async def ask(gate: Gate) -> None:
        while not done.is_set():
            async with made.host(gate) as host:
                serials.add(host.serial)
                statuses.extend([(await host.ask(post())).status for _ in range(3)])

    async with made.opened() as gate:
        asking = [asyncio.create_task(ask(gate)) for _ in range(8)]
        for _ in range(10):
            renewed = made.renew()
            await eventually(lambda number=renewed: number in serials)
        done.set()
        await asyncio.gather(*asking)
        assert set(statuses) == {200}
        assert len(gate.engine.seen) == len(statuses)
    assert len(serials) >= 10


async def test_a_pair_that_does_not_belong_together_leaves_the_old_one_and_is_told_once(
    made: Papers, caplog: pytest.LogCaptureFixture
) -> None:
    first = serial(made.cert_file.read_bytes())
    async with made.opened() as gate:
        put(made.key_file, made.authority.pair()[1])
        await eventually(lambda: NOT_USED in told(caplog))
        assert await shown(made, gate) == first
        second = made.renew()
        await eventually(lambda: USED in told(caplog))
        assert await shown(made, gate) == second
    assert told(caplog) == [NOT_USED, USED]
    (line,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert vars(line)["reason"] == "server.tls.key_file does not match the certificate in server.tls.cert_file"


async def test_a_certificate_that_is_there_before_its_key_is_no_matter(
    made: Papers, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = Certificates(made.settings(look_interval=SELDOM))
    certificates.load()
    old = certificates.context
    certificate, key = made.authority.pair()
    put(made.cert_file, certificate)
    await looks(certificates)
    assert certificates.context is old
    put(made.key_file, key)
    await looks(certificates)
    assert certificates.context is not old
    assert told(caplog) == [USED]


async def test_each_broken_change_is_told_once_and_nothing_more_when_it_is_taken_back(
    made: Papers, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = Certificates(made.settings(look_interval=SELDOM))
    certificates.load()
    old = certificates.context
    kept = made.folder / "kept"
    os.link(made.key_file, kept)
    for change in (b"one", b"another"):
        caplog.clear()
        put(made.key_file, change)
        await looks(certificates, 5)
        assert told(caplog) == [NOT_USED]
    caplog.clear()
    made.key_file.unlink()
    await looks(certificates, 3)
    assert told(caplog) == [NOT_USED]
    assert certificates.context is old


async def test_what_could_not_be_read_is_tried_again_although_nothing_changed(
    made: Papers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates(made.settings(look_interval=SELDOM))
    certificates.load()
    made.renew()
    with monkeypatch.context() as patched:

        def no_more_files(*_: object) -> None:
            raise OSError(24, "")

        patched.setattr(Path, "open", no_more_files)
        await looks(certificates, 3)
    assert told(caplog) == [NOT_USED]
    await looks(certificates)
    assert told(caplog) == [NOT_USED, USED]


async def test_files_that_stay_are_not_read_again(made: Papers, caplog: pytest.LogCaptureFixture) -> None:
    certificates = Certificates(made.settings(look_interval=SELDOM))
    certificates.load()
    old = certificates.context
    await looks(certificates, 3)
    assert certificates.context is old
    assert told(caplog) == []


async def test_a_change_of_the_authority_of_hosts_counts_too(made: Papers, tmp_path: Path) -> None:
    authority = made.folder / "hosts.pem"
    put(authority, made.authority.file.read_bytes())
    certificates = Certificates(made.settings(client_auth="require", client_ca_file=authority, look_interval=SELDOM))
    certificates.load()
    old = certificates.context
    put(authority, Authority(tmp_path, "stranger").file.read_bytes())
    await looks(certificates)
    assert certificates.context is not old


async def test_files_behind_a_link_that_moves_are_new(made: Papers) -> None:
    """As where a cluster puts secrets into a container: folders are exchanged, not files."""
    folders = [made.folder / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        certificate, key = made.authority.pair()
        (folder / "tls.crt").write_bytes(certificate)
        (folder / "tls.key").write_bytes(key)
    link = made.folder / "current"
    link.symlink_to(folders[0])
    for name in ("tls.crt", "tls.key"):
        (made.folder / f"linked-{name}").symlink_to(link / name)
    certificates = Certificates(
        TlsSettings(
            cert_file=made.folder / "linked-tls.crt", key_file=made.folder / "linked-tls.key", look_interval=SELDOM
        )
    )
    certificates.load()
    old = certificates.context
    beside = made.folder / "beside"
    beside.symlink_to(folders[1])
    os.replace(beside, link)
    await looks(certificates)
    assert certificates.context is not old


async def test_nothing_is_looked_at_after_the_close(made: Papers, caplog: pytest.LogCaptureFixture) -> None:
    async with made.opened() as gate:
        await gate.close()
        made.renew()
        await asyncio.sleep(1)
    assert told(caplog) == []


async def test_a_look_that_was_due_is_not_taken_after_the_close(made: Papers) -> None:
    certificates = Certificates(made.settings(look_interval=SELDOM))
    certificates.load()
    old = certificates.context
    certificates.watch()
    made.renew()
    certificates.close()
    await asyncio.sleep(3 * SELDOM.total_seconds())
    assert certificates.context is old
