"""The program that `make image` builds with: the first of docker, podman and buildah that works."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NO_DAEMON = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
FAILS = f'[ "$1" != info ] || {{ echo "{NO_DAEMON}" >&2; echo "errors pretty printing info" >&2; exit 1; }}'


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The programs of a machine on which nothing builds images."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("make", "head", "timeout"):
        (folder / name).symlink_to(shutil.which(name) or name)
    return folder


def put(machine: Path, name: str, script: str = "") -> None:
    """Put a program there that writes down what it is asked for."""
    program = machine / name
    program.write_text(f'#!/bin/sh\necho "{name} $*" >> {machine}/../asked\n{script}\n')
    program.chmod(0o755)


def made(machine: Path, *arguments: str) -> tuple[int, list[str], list[str]]:
    """The exit status of `make image`, the builds that it asked for, and the lines that it says of itself."""
    given = ("BUILD", "IMAGE", "MAKE", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(given)}
    ended = subprocess.run(
        ["make", "--no-print-directory", "image", *arguments],
        cwd=ROOT,
        env={**environment, "PATH": str(machine)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    asked = machine.parent / "asked"
    builds = [line for line in (asked.read_text().splitlines() if asked.exists() else []) if " info" not in line]
    return ended.returncode, builds, [line for line in ended.stderr.splitlines() if line.startswith("make image: ")]


def test_a_docker_without_its_daemon_is_passed_over_and_the_message_says_why(machine: Path) -> None:
    put(machine, "docker", FAILS)
    put(machine, "buildah")
    built = "buildah build --format docker --tag taskgate --file Dockerfile ."
    assert made(machine) == (0, [built], [f"make image: docker does not work: {NO_DAEMON}"])


def test_the_first_program_that_works_builds(machine: Path) -> None:
    for name in ("buildah", "podman"):
        put(machine, name)
    assert made(machine)[1] == ["podman build --format docker --tag taskgate --file Dockerfile ."]
    put(machine, "docker")
    assert made(machine)[1][1:] == ["docker build --tag taskgate --file Dockerfile ."]


@pytest.mark.parametrize("programs", [(), ("docker", "podman", "buildah")], ids=["missing", "failing"])
def test_where_none_works_the_message_says_what_to_install(machine: Path, programs: tuple[str, ...]) -> None:
    for name in programs:
        put(machine, name, FAILS)
    status, builds, lines = made(machine)
    assert (status, builds) == (2, [])
    assert lines == [
        *(f"make image: {name} does not work: {NO_DAEMON}" for name in programs),
        "make image: no docker, podman or buildah works here. On Debian: apt-get install buildah",
    ]


def test_a_builder_that_is_named_is_taken_with_its_options_and_not_asked_whether_it_works(machine: Path) -> None:
    put(machine, "docker")
    put(machine, "buildah", FAILS)
    arguments = ("BUILDER=buildah --root /store", "BUILD_OPTIONS=--pull", "IMAGE=registry.example.com/taskgate:1")
    options = "--format docker --pull --tag registry.example.com/taskgate:1 --file Dockerfile ."
    assert made(machine, *arguments) == (0, [f"buildah --root /store build {options}"], [])
