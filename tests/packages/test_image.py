"""The container image: it is built without a registry, serves, survives kill -9, and writes to its volume alone.

That takes minutes and root, so that it runs where IMAGE_TEST=1 asks for it: `make image-test`. Where mounts or device
files are forbidden, as in many containers, it is skipped.
"""

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from example.processes import UVICORN_LISTENS, running

from helpers.gateway.process import GatewayProcess, serving
from helpers.ports import free_port
from helpers.waiting import bounded
from provider.install import nothing_may_be_missing

ROOT = Path(__file__).resolve().parents[2]
USER = 10001
TOKEN = "/etc/taskgate/token"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# Without what no test reads: each layer is a copy of all files.
LEFT_OUT = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "locale", "man")]
BASE = ("--quiet", "--mode=root", "--variant=essential", "--include=python3,python3-venv,ca-certificates", *LEFT_OUT)


def missing() -> str | None:
    """Why the image is not built here."""
    if os.environ.get("IMAGE_TEST") != "1":
        return "takes minutes: `make image-test` builds and runs the image"
    return "only root can make the image's base" if os.geteuid() != 0 else None


def require_tools() -> None:
    """Skips the test, or fails it where nothing may be missing, unless what builds images is here."""
    lacking = [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]
    if lacking:
        absent = pytest.fail if nothing_may_be_missing() else pytest.skip
        absent(f"there is no {lacking[0]} here (Debian: apt-get install buildah mmdebstrap)")


def require_permission(folder: Path) -> None:
    """Skips the test unless device files can be made in the folder, and mounts too."""
    null, proc = folder / "null", folder / "proc"
    proc.mkdir()
    tried = (["mknod", null, "c", "1", "3"], ["mount", "-t", "proc", "proc", proc], ["umount", proc])
    for command in tried:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        if ended.returncode:
            pytest.skip(f"no image can be built here: {ended.stderr.strip()}")
    try:
        null.write_bytes(b"")
    except PermissionError:
        pytest.skip(f"no image can be built here: {folder} is mounted without devices")


pytestmark = [
    pytest.mark.program,
    pytest.mark.timeout(900),
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]


class Builder:
    """buildah with a store of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, *arguments: str | Path) -> list[str | Path]:
        return ["buildah", "--root", self.folder / "store", "--runroot", self.folder / "run", *arguments]

    def call(self, *arguments: str | Path) -> str:
        """The standard output of a command that succeeds."""
        environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}
        ended = subprocess.run(
            self.command(*arguments),
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout.strip()


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    require_tools()
    folder = tmp_path_factory.mktemp("image")
    require_permission(folder)
    builder = Builder(folder)
    yield builder
    builder.call("rm", "--all")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def container(builder: Builder) -> str:
    """A container of the image."""
    base = builder.folder / "base.tar"
    subprocess.run(["mmdebstrap", *BASE, "bookworm", base], timeout=600, check=True)
    empty = builder.call("from", "scratch")
    builder.call("add", "--quiet", empty, base, "/")
    builder.call("commit", "--quiet", empty, "localhost/base")
    options = f"--root {builder.folder}/store --runroot {builder.folder}/run"
    certificates = f"--volume {CERTIFICATES}:{CERTIFICATES}:ro" if CERTIFICATES.exists() else ""
    command = [
        "make", "--no-print-directory", "image", f"BUILDER=buildah {options}",
        f"BUILD_OPTIONS=--format docker --build-arg BASE_IMAGE=localhost/base {certificates}",
    ]  # fmt: skip
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    return builder.call("from", "--format", "docker", "taskgate")


@asynccontextmanager
async def served(builder: Builder, container: str, folder: Path) -> AsyncIterator[GatewayProcess]:
    """The command of the image, as its user, with a configuration and the volume of the image.

    That stays with the container. buildah would mount it above one that it is given, now and then.
    """
    volumes = ("--volume", f"{folder}/config:/etc/taskgate:ro")
    image = json.loads(builder.call("inspect", "--type", "image", "taskgate"))["Docker"]["config"]
    command = builder.command("run", "--isolation", "chroot", "--user", image["User"], *volumes, container, "--")
    environment = {"STORAGE_DRIVER": "vfs"}
    run = [*command, *image["Entrypoint"], *image["Cmd"]]
    async with running(run, log=folder / "log", environment=environment) as child:
        yield await serving(child)


def gateway_pid(parent: int) -> int:
    """The gateway among the descendants of a process."""
    waiting = [parent]
    while waiting:
        pid = waiting.pop()
        program, *arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if program.endswith(b"/python") and b"serve" in arguments and _user_of(pid) == USER:
            return pid
        # buildah starts programs from any of its threads.
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            waiting += map(int, children.read_text().split())
    raise AssertionError("the gateway does not run")


def _user_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def files_of(root: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder, with its size and the time of its last change."""
    found = (Path(folder) / name for folder, _, names in os.walk(root) for name in names)
    return {str(file): (file.lstat().st_size, file.lstat().st_mtime_ns) for file in found}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for a configuration, which the user of the image may read."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config").chmod(0o755)
    return tmp_path


def configure(folder: Path, upstream: str) -> None:
    listen, admin = free_port(), free_port()
    file = folder / "config" / "taskgate.yaml"
    file.write_text(
        "version: 1\nauth: {mode: none}\n"
        f'server: {{listen: "127.0.0.1:{listen}", drain: {{delay: 0s}}}}\n'
        f'admin: {{listen: "127.0.0.1:{admin}", tokens: [{{name: test, role: viewer, file: {TOKEN}}}]}}\n'
        f'upstreams: {{reports: {{path: /mcp, url: "{upstream}"}}}}\n'
    )
    file.chmod(0o644)
    token = folder / "config" / "token"
    token.write_text(secrets.token_urlsafe(32))
    token.chmod(0o600)
    os.chown(token, USER, USER)


async def said(*arguments: str | Path) -> str:
    """What a command of taskgate prints, outside of the image."""
    command = (sys.executable, "-m", "taskgate", *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    async with bounded():
        printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()


async def called(gateway: GatewayProcess, *arguments: str) -> str:
    """What `taskgate call` prints of the tool's result."""
    return await said("call", "/mcp", *arguments, "--url", f"http://{gateway.listen}")


async def tasks(gateway: GatewayProcess, folder: Path) -> list[tuple[str, str]]:
    """The reference and the status of every task."""
    arguments = ("--admin", f"http://{gateway.admin}", "--token", folder / "config" / "token", "--json")
    listed = json.loads(await said("tasks", "ls", *arguments))["items"]
    return [(task["reference"], task["status"]) for task in listed]


def test_the_image_says_how_it_is_run(builder: Builder, container: str) -> None:
    image = json.loads(builder.call("inspect", "--type", "image", "taskgate"))["Docker"]["config"]
    assert (image["User"], image["Volumes"]) == ("10001:10001", {"/var/lib/taskgate": {}})
    assert (image["Entrypoint"], image["Healthcheck"]["Test"]) == (["taskgate"], ["CMD", "taskgate", "health"])
    assert (image["StopSignal"], image["Cmd"][0]) == ("SIGTERM", "serve")


async def test_a_gateway_in_the_image_serves_survives_a_kill_and_writes_to_its_volume_alone(
    builder: Builder, container: str, folder: Path
) -> None:
    root = Path(builder.call("mount", container))
    before = files_of(root)
    server = (sys.executable, ROOT / "example" / "server.py", "--port", "0")
    async with running(server, log=folder / "server.log") as demo:
        async with bounded():
            configure(folder, (await demo.said(UVICORN_LISTENS))[1].decode() + "/mcp")
        async with served(builder, container, folder) as gateway:
            assert "3" in await called(gateway, "quick_sum", "--arg", "a=1", "--arg", "b=2")
            await called(gateway, "generate_report", "--arg", "quarter=Q1", "--arg", "seconds=0.1", "--task")
            [(reference, status)] = await tasks(gateway, folder)
            assert status == "completed"
            os.kill(gateway_pid(gateway.child.process.pid), signal.SIGKILL)
            assert await gateway.exit_status() != 0
        async with served(builder, container, folder) as gateway:
            assert await tasks(gateway, folder) == [(reference, "completed")]
            report = ("generate_report", "--arg", "quarter=Q2", "--arg", "seconds=0.1", "--task")
            assert "Q2" in await called(gateway, *report)
            health = ("run", "--isolation", "chroot", container, "--", "taskgate", "health")
            builder.call(*health, "--admin", f"http://{gateway.admin}")
            os.kill(gateway_pid(gateway.child.process.pid), signal.SIGTERM)
            assert await gateway.exit_status() == 0
            assert any(line["event"] == "drained" for line in gateway.log_lines())
    after = files_of(root)
    # buildah itself writes these for each run.
    changed = {
        name.removeprefix(str(root)) for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    }
    assert changed <= {"/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/run/.containerenv"}
    [database] = builder.folder.rglob("buildah-volumes/*/taskgate.db")
    assert database.stat().st_uid == USER
