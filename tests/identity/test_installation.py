"""The provider's packages are installed once, from any registry, and what is missing is said."""

import json
from pathlib import Path

import pytest

from provider import install

PUBLIC = "https://registry.npmjs.org/"  # npm puts the configured registry in its place


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that programs are looked for in, still empty; what is installed goes beside it."""
    for name, place in (("LOCK", "package-lock.json"), ("STAMP", "node_modules/made-from"), ("HOME", "")):
        monkeypatch.setattr(install, name, tmp_path / place)
    install.LOCK.write_text("{}")
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def put(folder: Path, name: str, script: str) -> None:
    """Makes a program of that name."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_what_is_installed_from_a_lock_is_installed_once(programs: Path) -> None:
    put(programs, "node", "echo v18.20.4")
    put(programs, "npm", "/bin/mkdir -p node_modules && echo $1 >> asked")
    assert [install.ensure(), install.ensure()] == [True, False]
    install.LOCK.write_text('{"packages": {}}')
    assert [install.ensure(), install.ensure()] == [True, False]
    assert (install.HOME / "asked").read_text() == "ci\nci\n"


def test_what_npm_could_not_install_is_tried_again(programs: Path) -> None:
    put(programs, "node", "echo v18.20.4")
    put(programs, "npm", "/bin/mkdir -p node_modules; echo out of reach; exit 1")
    with pytest.raises(install.ProviderNotInstalled, match="npm ci failed, its last lines:\n    out of reach"):
        install.ensure()
    put(programs, "npm", "exit 0")
    assert install.ensure() is True


def test_npm_has_only_so_long(programs: Path) -> None:
    put(programs, "node", "echo v18.20.4")
    put(programs, "npm", "exec /bin/sleep 60")
    with pytest.raises(install.ProviderNotInstalled, match="took longer than 0 s"):
        install.ensure(within=0.05)


def test_without_node_the_reason_names_what_to_install(programs: Path) -> None:
    with pytest.raises(install.ProviderNotInstalled, match=r"no node .*apt-get install nodejs npm"):
        install.ensure()


def test_without_npm_the_reason_names_it(programs: Path) -> None:
    put(programs, "node", "echo v18.20.4")
    with pytest.raises(install.ProviderNotInstalled, match="there is no npm"):
        install.ensure()


@pytest.mark.parametrize(("says", "named"), [("v16.20.2", r"v16\.20\.2"), ("", "no version")])
def test_an_old_node_is_named_with_its_version(programs: Path, says: str, named: str) -> None:
    put(programs, "node", f"echo {says}")
    with pytest.raises(install.ProviderNotInstalled, match=rf"{named}, Node\.js 18 or newer"):
        install.ensure()


@pytest.mark.parametrize(("all_required", "status"), [("1", 1), ("", 0)])
def test_what_is_missing_fails_the_command_only_where_nothing_may_be(
    all_required: str,
    status: int,
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TASKGATE_REQUIRE_ALL", all_required)
    assert install.main() == status
    assert "there is no node" in capsys.readouterr().err


def test_the_lock_names_no_registry_but_the_public_one_and_pins_every_package() -> None:
    packages = json.loads(install.LOCK.read_text())["packages"]
    installed = [package for place, package in packages.items() if place]
    assert all(package["integrity"].startswith("sha512-") for package in installed)
    assert [place for place in (one.get("resolved", PUBLIC) for one in installed) if not place.startswith(PUBLIC)] == []
    manifest = json.loads((install.HOME / "package.json").read_text())
    assert manifest["dependencies"] == {"oidc-provider": packages["node_modules/oidc-provider"]["version"]}
