"""Services of files for containers, started here as they say, without containers.

Each service has an address of loopback in place of a network of its own, and keeps its ports. A folder has the files
that it mounts, at the paths that the service names. So the texts are changed in names and folders alone.
"""

import json
import os
import random
import re
import shlex
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from helpers.gateway.process import TASKGATE
from provider.install import nothing_may_be_missing

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = TASKGATE.parent
_ANY_ADDRESS = "0.0.0.0"


class ImageSettings(NamedTuple):
    """The settings of the image that say how it is started."""

    entrypoint: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def image_settings() -> ImageSettings:
    """The settings of the last stage of the Dockerfile."""
    stage = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    [variables] = re.findall(r"^ENV (.+)$", stage, re.M)
    [entrypoint], [arguments] = (re.findall(rf"^{name} (\[.+\])$", stage, re.M) for name in ("ENTRYPOINT", "CMD"))
    environment = dict(each.split("=", 1) for each in shlex.split(variables))
    return ImageSettings(tuple(json.loads(entrypoint)), tuple(json.loads(arguments)), environment)


def loopback_addresses(*names: str) -> dict[str, str]:
    """An address of loopback for each name, on which no other test listens."""
    second, third = (random.SystemRandom().randint(1, 254) for _ in range(2))
    return {name: f"127.{second}.{third}.{number}" for number, name in enumerate(names, 2)}


def require_ports(address: str, *ports: int) -> None:
    """Skips the test where a program of this machine listens on one of the ports at every address."""
    for port in ports:
        try:
            socket.create_server((address, port)).close()
        except OSError:
            absent = pytest.fail if nothing_may_be_missing() else pytest.skip
            absent(f"a program listens on port {port} of every address here")


class ContainerFiles:
    """The files of one container, below a folder that stands for its root.

    `address` is its own, and `names` are the texts that become others in every file and argument.
    """

    def __init__(self, root: Path, address: str, names: Mapping[str, str]) -> None:
        self.root = root
        self.address = address
        self._names = {_ANY_ADDRESS: address, **names}
        self._mounted: list[str] = []
        root.mkdir(parents=True)

    def at(self, path: str) -> Path:
        """The place of a path of the container."""
        return self.root / path.lstrip("/")

    def mount(self, target: str, source: Path) -> None:
        """Mount a folder as it is, or a file with the names and folders changed."""
        place = self.at(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        self._mounted.append(target)
        if source.is_dir():
            place.symlink_to(source, target_is_directory=True)
        else:
            place.write_text(self.here(source.read_text()))

    def here(self, text: str) -> str:
        """The text with the names and folders of the container changed."""
        for name, other in self._names.items():
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", other, text)
        for target in sorted(self._mounted, key=len, reverse=True):
            text = re.sub(rf"(?<![\w.-]){re.escape(target)}(?![\w.-])", str(self.at(target)), text)
        return text

    def command(self, words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """The command of the image of taskgate, with these variables and no others."""
        image = image_settings()
        variables = {name: self.here(value) for name, value in {**image.environment, **environment}.items()}
        variables["PATH"] = f"{PROGRAMS}{os.pathsep}{os.defpath}"
        given = (f"{name}={value}" for name, value in variables.items())
        return ["env", "-i", *given, *image.entrypoint, *map(self.here, words or image.arguments)]


def words_of(command: Any) -> list[str]:
    """The words of a command, which is a list or one text."""
    return shlex.split(command) if isinstance(command, str) else list(command or ())


def in_order(services: Mapping[str, Any]) -> Iterator[str]:
    """The names of the services of a compose file, each after those that it depends on."""
    given: list[str] = []

    def after(name: str) -> Iterator[str]:
        for needed in services[name].get("depends_on", {}):
            yield from after(needed)
        if name not in given:
            given.append(name)
            yield name

    for name in services:
        yield from after(name)
