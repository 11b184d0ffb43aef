"""The wheel: it is the same bytes each time, and what it installs serves calls without the checkout."""

import email
import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from example.processes import UVICORN_LISTENS, running

from helpers.gateway.process import gateway_process
from helpers.waiting import bounded
from provider.install import nothing_may_be_missing
from taskgate import __version__
from taskgate.cli.example_files import FILES, example_files

pytestmark = [pytest.mark.program, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WHEEL = f"taskgate-{__version__}-py3-none-any.whl"
WITHIN = 120.0
EPOCH = "1700000000"
UNREACHED = ("Temporary failure in name resolution", "Could not find a version", "Failed to establish a new connection")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """The standard output of a command that succeeds. Without a package index the test is skipped, or fails."""
    ended = subprocess.run(
        command, cwd=cwd, env=outside() | environment, capture_output=True, text=True, timeout=WITHIN, check=False
    )
    said = ended.stdout + ended.stderr
    if ended.returncode and any(sign in said for sign in UNREACHED) and not nothing_may_be_missing():
        pytest.skip("no package index is reached, so nothing can be installed")
    assert ended.returncode == 0, said
    return ended.stdout


def outside() -> dict[str, str]:
    """An environment in which nothing leads to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TASKGATE", "PYTEST"))}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheel` writes."""
    folder = tmp_path_factory.mktemp("dist")
    run("make", "--no-print-directory", "wheel", f"DIST={folder}", cwd=ROOT, SOURCE_DATE_EPOCH=EPOCH)
    return folder


def environment(folder: Path, *wanted: str) -> Path:
    """The programs of a new environment in which pip has installed what is wanted."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", folder / "bin" / "python")
    run(*pip, "install", "--quiet", "--no-compile", *wanted, cwd=folder)
    return folder / "bin"


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment in which the wheel was installed. Other packages are those of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    programs = environment(folder, "--no-deps", f"{dist / WHEEL}")
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "packages-of-the-tests.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return programs


@pytest.fixture
def examples(installed: Path, tmp_path: Path) -> Path:
    """The folder that the installed program has written its examples to."""
    folder = tmp_path / "examples"
    run(installed / "taskgate", "examples", folder, cwd=tmp_path)
    return folder


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return email.message_from_bytes(archive.read(f"taskgate-{__version__}.dist-info/METADATA"))


def test_the_sdist_and_the_wheel_are_made(dist: Path) -> None:
    assert {file.name for file in dist.iterdir()} == {WHEEL, f"taskgate-{__version__}.tar.gz"}


@pytest.mark.thorough
def test_the_wheel_is_the_same_bytes_for_another_user_at_another_time(dist: Path, tmp_path: Path) -> None:
    command = f"umask 077; exec make --no-print-directory wheel DIST='{tmp_path}'"
    run("sh", "-c", command, cwd=ROOT, SOURCE_DATE_EPOCH=EPOCH, PYTHONHASHSEED="7", TZ="Asia/Tokyo")
    assert (tmp_path / WHEEL).read_bytes() == (dist / WHEEL).read_bytes()


@pytest.mark.thorough
def test_the_wheel_brings_the_packages_that_it_needs(dist: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path, f"{dist / WHEEL}[demo]")
    assert run(programs / "taskgate", "--version", cwd=tmp_path) == f"taskgate, version {__version__}\n"
    run(programs / "python", "-c", "import mcp, uvicorn", cwd=tmp_path)


def test_the_metadata_name_the_licence_the_extras_and_the_classifiers(dist: Path) -> None:
    found = metadata(dist / WHEEL)
    assert (found["License-Expression"], found["License-File"]) == ("Apache-2.0", "LICENSE")
    assert {"demo", "redis", "tracing", "uvloop"} <= {*found.get_all("Provides-Extra", [])}
    assert "Typing :: Typed" in found.get_all("Classifier", [])
    with zipfile.ZipFile(dist / WHEEL) as archive:
        assert "taskgate/py.typed" in archive.namelist()


def test_the_wheel_has_the_example_files_that_the_command_names() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["taskgate"]
    assert [each.removeprefix("share/") for each in patterns if each.startswith("share/")] == [*FILES]


def test_the_examples_that_are_written_are_those_of_the_checkout(examples: Path) -> None:
    written = {file.relative_to(examples): file.read_bytes() for file in examples.rglob("*") if file.is_file()}
    share = ROOT / "proxy" / "taskgate" / "share"
    assert written == {file: (share / file).read_bytes() for file in example_files()}
    assert {"config", "dashboards", "alerts", "demo"} <= {file.parts[0] for file in written}


def test_an_example_configuration_is_taken_by_the_installed_program(installed: Path, examples: Path) -> None:
    file = examples / "config" / "minimal.yaml"
    # Its ports are the usual ones: they may be in use on this machine.
    said = run(installed / "taskgate", "check", "--config", file, "--running", "--json", cwd=examples)
    assert json.loads(said)["result"] == "ok"


async def test_the_installed_program_serves_a_call_to_the_demo_server(
    installed: Path, examples: Path, tmp_path: Path
) -> None:
    assert run(installed / "taskgate", "--version", cwd=tmp_path) == f"taskgate, version {__version__}\n"
    server = (installed / "python", examples / "demo" / "server.py", "--port", "0")
    async with running(server, log=tmp_path / "server.log") as demo:
        async with bounded():
            listens = (await demo.said(UVICORN_LISTENS))[1].decode()
        addresses = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
        arguments = ("--upstream", f"{listens}/mcp", *addresses)
        program = (installed / "taskgate",)
        async with gateway_process(arguments, log=tmp_path / "gateway.log", program=program) as gateway:
            call = ("call", "/mcp", "quick_sum", "--arg", "a=1", "--arg", "b=2", "--json")
            said = run(installed / "taskgate", *call, "--url", f"http://{gateway.listen}", cwd=tmp_path)
            run(installed / "taskgate", "health", "--admin", f"http://{gateway.admin}", cwd=tmp_path)
    assert "3" in json.dumps(json.loads(said))
