"""Files that cannot be used when they are read again: the gateway goes on with what it has, and reads the next."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import GatewayConfig, configuration, load, written
from helpers.gateway.gateway import Gateway, Reloaded, serve
from helpers.secrets import noted
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, eventually
from requirements import covers

SECRET = "a-secret-that-nobody-is-told"


class Filed:
    """A file for a gateway, which is read again by whatever `read` is."""

    def __init__(self, file: Path, config: GatewayConfig) -> None:
        self.file = file
        file.write_text(json.dumps(written(config)))
        self.read: Callable[[], GatewayConfig] = lambda: load(file, {})
        self.gateway: Gateway

    @asynccontextmanager
    async def running(self, directory: Path | None = None) -> AsyncIterator[Gateway]:
        """A gateway that was started with it, for the length of a block."""
        async with serve(self.read(), data_directory=directory, source=self._read) as self.gateway:
            yield self.gateway

    def _read(self) -> GatewayConfig:
        return self.read()

    async def again(self, text: str | bytes | None = None) -> Reloaded:
        """What comes of reading it again, with that in it."""
        if text is not None:
            self.file.write_bytes(text if isinstance(text, bytes) else text.encode())
        async with bounded():
            return await self.gateway.reread()


@asynccontextmanager
async def filed(folder: Path, config: GatewayConfig, directory: Path | None = None) -> AsyncIterator[Filed]:
    """Such a file, with a gateway that runs."""
    found = Filed(folder / "taskgate.yaml", config)
    async with found.running(directory):
        yield found


TEXTS: dict[str, str | bytes] = {
    "empty": "",
    "no YAML": "a: [",
    "twice": "version: 1\nversion: 1\n",
    "no mapping": "[1, 2]",
    "two documents": "a: 1\n---\nb: 2\n",
    "alias": "a: &a [*a]\n",
    "deep": "[" * 5000,
    "no UTF-8": b"\xff\xfe\x00",
    "control": "a: \x01",
    "huge": "# " + "x" * 2**21,
    "unset": "version: ${NOT_SET}\n",
    "unknown": "version: 1\nsecrets: {x: '" + SECRET + "'}\n",
    "number": "version: " + "9" * 5000 + "\n",
    "tag": "version: !!python/object:os.system x\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_no_configuration(tmp_path: Path, text: str | bytes) -> None:
    """What cannot be read is refused."""
    noted(SECRET)
    async with filed(tmp_path, configuration({"reports": "http://127.0.0.1:9/mcp"})) as gateway:
        good = gateway.file.read_bytes()
        found = await gateway.again(text)
        assert found.result == "invalid"
        assert found.problems
        assert SECRET not in str(found)
        assert (await gateway.again(good)) == Reloaded(result="unchanged")


async def test_what_stays_wrong_is_logged_in_full_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def logged() -> list[tuple[str, Any]]:
        found = [(each.message, each.__dict__.get("problem", each.__dict__.get("problems"))) for each in caplog.records]
        caplog.clear()
        return [each for each in found if each[0].startswith("configuration not reloaded")]

    text = "version: 1\nauth: {mode: none}\nupstreams: {}\nlimit: 1\n"
    async with filed(tmp_path, configuration({"reports": "http://127.0.0.1:9/mcp"})) as gateway:
        good = gateway.file.read_bytes()
        first = await gateway.again(text)
        full = [("configuration not reloaded", problem) for problem in first.problems]
        assert (len(full), logged()) == (2, full)
        for _ in range(2):
            assert await gateway.again() == first
            assert logged() == [("configuration not reloaded, for the same problems as before", 2)]
        # Others, and the same after the file was good meanwhile, are told.
        await gateway.again(text.replace("limit:", "limes:"))
        assert len(logged()) == 2
        await gateway.again(good)
        await gateway.again(text)
        assert logged() == full


@covers("T7")
async def test_a_second_issuer_whose_users_a_server_cannot_tell_apart_is_refused(tmp_path: Path) -> None:
    issuers = TokenIssuer(tmp_path), TokenIssuer(tmp_path, issuer="https://other.example.com/", number=1)
    upstream = {"path": "/reports/mcp", "url": "http://127.0.0.1:9/mcp", "identity_headers": {"subject": "X-User"}}
    async with filed(tmp_path, guarded({}, issuers[0], upstreams={"reports": upstream})) as gateway:
        raw = json.loads(gateway.file.read_text())
        raw["auth"]["issuers"]["other"] = issuers[1].section
        found = await gateway.again(json.dumps(raw))
        [problem] = found.problems
        assert "upstreams.reports.identity_headers.issuer: is required with subject" in problem
        raw["upstreams"]["reports"]["identity_headers"]["issuer"] = "X-Issuer"
        assert (await gateway.again(json.dumps(raw))).result == "success"


async def test_a_file_that_is_away_or_is_none_is_refused(tmp_path: Path) -> None:
    async with filed(tmp_path, configuration({"reports": "http://127.0.0.1:9/mcp"})) as gateway:
        good = gateway.file.read_bytes()
        gateway.file.unlink()
        for make in (lambda: None, gateway.file.mkdir):
            make()
            found = await gateway.again()
            assert found.result == "invalid"
        gateway.file.rmdir()
        gateway.file.symlink_to(gateway.file)
        found = await gateway.again()
        assert found.result == "invalid"
        gateway.file.unlink()
        assert (await gateway.again(good)) == Reloaded(result="unchanged")


def _tls(**files: Any) -> Callable[[Path], dict[str, Any]]:
    def change(folder: Path) -> dict[str, Any]:
        named = {name: str(folder / file) for name, file in files.items()}
        return {"upstreams": {"reports": {"path": "/r", "url": "https://127.0.0.1:9/mcp", "tls": named}}}

    return change


FILES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "ca missing": _tls(ca_file="none"),
    "ca a folder": _tls(ca_file="."),
    "ca empty": _tls(ca_file="empty"),
    "ca too long": _tls(ca_file="x" * 300),
    "certificate no PEM": _tls(cert_file="junk", key_file="junk"),
    "certificate a folder": _tls(cert_file=".", key_file="."),
    "key missing": lambda folder: {"auth": {"context": {"key_file": str(folder / "none")}}},
    "key a folder": lambda folder: {"auth": {"context": {"key_file": str(folder)}}},
    "key too long": lambda folder: {"auth": {"context": {"key_file": str(folder / ("x" * 300))}}},
    "key nul": lambda folder: {"auth": {"context": {"key_file": str(folder / "a\0b")}}},
    "key junk": lambda folder: {"auth": {"context": {"key_file": str(folder / "junk")}}},
    "ca nul": _tls(ca_file="a\0b"),
}


@pytest.mark.parametrize("change", FILES.values(), ids=FILES)
async def test_files_of_no_use(tmp_path: Path, issuer: TokenIssuer, change: Callable[[Path], dict[str, Any]]) -> None:
    """A file that cannot be used, and is named, changes nothing."""
    (tmp_path / "junk").write_text(noted(SECRET))
    (tmp_path / "empty").write_text("")
    config = guarded({"reports": "http://127.0.0.1:9/mcp"}, issuer)
    async with filed(tmp_path, config) as gateway:
        good = json.loads(gateway.file.read_text())
        bad = json.loads(gateway.file.read_text())
        for section, keys in change(tmp_path).items():
            for key, value in keys.items():
                bad[section][key] = {**bad[section].get(key, {}), **value}
        bad["upstreams"]["other"] = {"path": "/other", "url": "http://127.0.0.1:9/mcp", "health": None}
        found = await gateway.again(json.dumps(bad))
        assert found.result == "invalid"
        assert SECRET not in str(found)
        assert list((await gateway.gateway.readiness())["upstreams"]) == ["reports"]
        assert (await gateway.again(json.dumps(good))) == Reloaded(result="unchanged")


async def test_a_key_that_was_made_and_is_gone_is_not_made_anew(tmp_path: Path, issuer: TokenIssuer) -> None:
    """With another key nobody's tasks would be theirs any more, those that run among them."""
    async with filed(tmp_path, guarded({"reports": "http://127.0.0.1:9/mcp"}, issuer), tmp_path / "data") as gateway:
        key = tmp_path / "data" / "context.key"
        text = key.read_bytes()
        key.unlink()
        found = await gateway.again()
        assert found == Reloaded(
            result="invalid",
            problems=("context.key in the data directory: the key file cannot be read: No such file or directory",),
        )
        assert not key.exists()
        key.write_bytes(text)
        assert await gateway.again() == Reloaded(result="unchanged")


async def test_a_key_that_is_to_be_kept_where_there_is_no_place_for_it_waits_for_a_restart(
    tmp_path: Path, issuer: TokenIssuer
) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 43 + "=\n")
    key.chmod(0o600)
    named = guarded({"reports": "http://127.0.0.1:9/mcp"}, issuer, auth={"context": {"key_file": str(key)}})
    file = {"backend": "sqlite", "sqlite": {"path": str(tmp_path / "taskgate.db")}}
    named = named.model_copy(update={"store": named.store.model_validate(file)})
    async with filed(tmp_path, named) as gateway:
        written = json.loads(gateway.file.read_text())
        written["auth"]["context"]["key_file"] = None
        found = await gateway.again(json.dumps(written))
        assert found == Reloaded(
            result="invalid",
            problems=(
                "auth.context.key_file: must name a file, or restart the gateway: "
                "it runs without a data directory to keep a key in",
            ),
        )


async def test_what_nobody_foresaw_changes_nothing(tmp_path: Path) -> None:
    async with filed(tmp_path, configuration({"reports": "http://127.0.0.1:9/mcp"})) as gateway:
        read = gateway.read

        def fall() -> GatewayConfig:
            raise RuntimeError(noted(SECRET))

        gateway.read = fall
        found = await gateway.again()
        assert found.result == "invalid"
        assert SECRET not in str(found)
        gateway.read = read
        assert (await gateway.again()) == Reloaded(result="unchanged")


async def test_a_gateway_ends_though_its_file_is_being_read_and_that_takes_for_ever(tmp_path: Path) -> None:
    gateway = Filed(tmp_path / "taskgate.yaml", configuration({"reports": "http://127.0.0.1:9/mcp"}))
    begun, over = threading.Event(), threading.Event()
    read = gateway.read

    def slow() -> GatewayConfig:
        begun.set()
        over.wait(20)
        return read()

    async with gateway.running() as running_one:
        gateway.read = slow
        reading = asyncio.create_task(running_one.reread())
        await eventually(begun.is_set)
        try:
            async with bounded():
                await running_one.close()
        finally:
            over.set()
        found = await reading
    assert found == Reloaded(result="not_now", problems=("the gateway is starting or shutting down",))
