"""Files with secrets that are replaced while the gateway runs, as agents of vaults and Kubernetes do it."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway, serve
from helpers.secrets import noted
from helpers.server import ScriptedServer, Turn, result, status
from taskgate.config import GatewayConfig, load
from taskgate.config.file_watch import FileWatch

FILE = """\
version: 1
server: {{listen: "127.0.0.1:0"}}
admin: {{listen: "127.0.0.1:0"}}
auth: {{mode: none}}
store: {{backend: memory}}
audit: {{enabled: false}}
upstreams:
  reports:
    path: /reports/mcp
    url: {url}
    protocol_version: "2025-11-25"
    health: null
    headers: {{X-Api-Key: "${{file:{key}}}"}}
"""


def put(file: Path, text: str) -> None:
    """A new file in the place of the old one."""
    new = file.with_name("new")
    new.write_text(text)
    new.chmod(0o600)
    new.replace(file)


class Rotation:
    """A gateway whose key is in a file; the server takes calls with the key `accepted` alone."""

    def __init__(self, server: ScriptedServer, folder: Path) -> None:
        self.key = folder / "key"
        self.file = folder / "taskgate.yaml"
        self.accepted = noted("the-first-key")
        self.reads = 0
        put(self.key, self.accepted)
        self.file.write_text(FILE.format(url=server.url, key=self.key))
        self.watch = FileWatch(self.file)
        server.script["echo"] = self._answer

    async def _answer(self, turn: Turn) -> Any:
        is_accepted = turn.request.headers["X-Api-Key"] == self.accepted
        return await (result({"content": []}) if is_accepted else status(401))(turn)

    def read(self) -> GatewayConfig:
        self.reads += 1
        return load(self.file, {})


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server


@pytest.fixture
def rotation(server: ScriptedServer, tmp_path: Path) -> Rotation:
    return Rotation(server, tmp_path)


@pytest.fixture
async def gateway(rotation: Rotation) -> AsyncIterator[Gateway]:
    config = rotation.read()
    rotation.watch.follow(config.references.files)
    async with serve(config, source=rotation.read, watch=rotation.watch) as gateway:
        yield gateway


async def test_a_refused_key_has_the_gateway_look_at_the_file_and_the_call_succeeds(
    gateway: Gateway, rotation: Rotation, server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    host = await gateway.greeted()
    rotation.accepted = noted("the-second-key")
    put(rotation.key, rotation.accepted)
    with caplog.at_level(logging.INFO):
        answer = await host.call("echo")
    assert answer.result == {"content": []}
    assert (len(server.heard("tools/call")), len(server.heard("initialize"))) == (2, 1)
    (line,) = (record for record in caplog.records if record.getMessage() == "configuration reloaded")
    assert vars(line)["changed"] == ["upstreams.reports.headers.X-Api-Key"]
    assert "the-second-key" not in caplog.text + str([vars(record) for record in caplog.records])


async def test_a_file_that_did_not_change_is_not_read_for_a_refusal(
    gateway: Gateway, rotation: Rotation, server: ScriptedServer
) -> None:
    host = await gateway.greeted()
    rotation.accepted = "a key that nobody has"
    for _ in range(3):
        assert (await host.call("echo")).code == -32603
    assert (rotation.reads, len(server.heard("tools/call"))) == (1, 3)


async def test_refusals_at_one_time_cost_one_reload(
    gateway: Gateway, rotation: Rotation, server: ScriptedServer
) -> None:
    host = await gateway.greeted()
    rotation.accepted = noted("the-second-key")
    put(rotation.key, rotation.accepted)
    answers = await asyncio.gather(*(host.call("echo", {"n": n}) for n in range(10)))
    assert [answer.result for answer in answers] == [{"content": []}] * 10
    assert rotation.reads == 2


async def test_all_that_are_refused_in_one_turn_of_the_loop_wait_for_the_reload(
    gateway: Gateway, rotation: Rotation
) -> None:
    async def look() -> int:
        await gateway.service.look()
        return rotation.reads

    put(rotation.key, noted("the-second-key"))
    assert await asyncio.gather(*(look() for _ in range(5))) == [2] * 5


@pytest.mark.parametrize("content", ["", "two\nlines", "x" * 70_000])
async def test_a_key_that_cannot_be_one_changes_nothing_until_it_is_one(
    gateway: Gateway, rotation: Rotation, content: str
) -> None:
    host = await gateway.greeted()
    put(rotation.key, content)
    assert gateway.service.has_changed()
    assert (await gateway.reread()).result == "invalid"
    assert (await host.call("echo")).result == {"content": []}
    rotation.accepted = noted("the-second-key")
    put(rotation.key, rotation.accepted)
    assert (await host.call("echo")).result == {"content": []}


async def test_a_file_that_a_later_configuration_names_is_watched_from_then_on(
    gateway: Gateway, rotation: Rotation, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    put(other, rotation.accepted)
    rotation.file.write_text(rotation.file.read_text().replace(str(rotation.key), str(other)))
    assert gateway.service.has_changed()
    assert (await gateway.reread()).result == "unchanged"
    put(rotation.key, "nobody reads this")
    assert not gateway.service.has_changed()
    put(other, noted("the-second-key"))
    assert gateway.service.has_changed()


@pytest.mark.parametrize("content", [None, "", "two\nlines"])
async def test_a_file_that_a_refused_configuration_names_is_watched_beside_those_in_use(
    gateway: Gateway, rotation: Rotation, tmp_path: Path, content: str | None
) -> None:
    written, other = rotation.file.read_text(), tmp_path / "other"
    if content is not None:
        put(other, content)
    rotation.file.write_text(written.replace(str(rotation.key), str(other)))
    assert gateway.service.has_changed()
    assert (await gateway.reread()).result == "invalid"
    assert not gateway.service.has_changed()
    put(rotation.key, "another key")
    assert gateway.service.has_changed()
    put(other, rotation.accepted)
    assert gateway.service.has_changed()
    assert (await gateway.reread()).result == "unchanged"
    put(rotation.key, "nobody reads this")
    assert not gateway.service.has_changed()


async def test_a_change_that_an_operator_had_read_is_no_change_any_more(gateway: Gateway, rotation: Rotation) -> None:
    rotation.accepted = noted("the-second-key")
    put(rotation.key, rotation.accepted)
    assert (await gateway.reread()).result == "success"
    assert not gateway.service.has_changed()
    assert (await (await gateway.greeted()).call("echo")).result == {"content": []}


@pytest.mark.thorough
async def test_a_file_that_cannot_be_read_to_its_end_holds_no_request_for_long(rotation: Rotation) -> None:
    config = rotation.read()
    rotation.watch.follow(config.references.files)
    is_over = threading.Event()

    def hang() -> GatewayConfig:
        is_over.wait()
        return config

    async with serve(config, source=hang, watch=rotation.watch) as gateway:
        host = await gateway.greeted()
        rotation.accepted = noted("the-second-key")
        put(rotation.key, rotation.accepted)
        try:
            assert (await host.call("echo")).code == -32603
        finally:
            is_over.set()


async def test_without_a_watch_a_refusal_reads_nothing(
    rotation: Rotation, server: ScriptedServer, tmp_path: Path
) -> None:
    config = rotation.read()
    async with serve(config, source=rotation.read) as gateway:
        host = await gateway.greeted()
        rotation.accepted = "the-second-key"
        put(rotation.key, rotation.accepted)
        assert (await host.call("echo")).code == -32603
    assert (rotation.reads, len(server.heard("tools/call"))) == (1, 1)
