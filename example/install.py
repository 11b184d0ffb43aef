"""Makes `.venv` with taskgate and one of its extras in it: `python3 example/install.py EXTRA`.

Of what pip does it prints how far it is. With LOCKED=1 the releases and the hashes are those of `deploy/locks/dev.txt`.
Only the standard library is used here: this runs before anything is installed.
"""

import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
ENVIRONMENT = CHECKOUT / ".venv"
LOCK = CHECKOUT / "deploy" / "locks" / "dev.txt"
BROUGHT = {
    "demo": "what `make run` needs",
    "demo-replicas": "what `make run REPLICAS=3` needs",
    "dev": "taskgate and the tools of its developers",
}
AT_A_TIME = 20
_FOUND = re.compile(r"(Collecting|Processing) ")
_INSTALLING = re.compile(r"Installing collected packages: (.+)")


class NotInstalled(Exception):
    """pip failed, and has printed why."""


def make(extra: str) -> None:
    """Makes the environment unless it is there, and installs into it. Raises NotInstalled."""
    began = time.monotonic()
    if not works():
        print("Making .venv …", flush=True)
        venv.create(ENVIRONMENT, clear=True, symlinks=True, with_pip=True)
    print(f"Installing {BROUGHT[extra]} into .venv: this happens once …", flush=True)
    packages = sum(map(install, steps(extra, locked=os.environ.get("LOCKED", "") not in {"", "0"})))
    print(f"Installed {counted(packages)} in {time.monotonic() - began:.0f} s.", flush=True)


def works() -> bool:
    """Whether there is an environment with pip: not one that was left half made, or whose interpreter is gone."""
    try:
        asked = subprocess.run(
            [ENVIRONMENT / "bin" / "python", "-m", "pip", "--version"], capture_output=True, check=False
        )
    except OSError:
        return False
    return asked.returncode == 0


def steps(extra: str, *, locked: bool) -> Iterator[tuple[str | Path, ...]]:
    """The options of each run of pip."""
    if not locked:
        yield ("--editable", f".[{extra}]")
        return
    yield ("--require-hashes", "--requirement", LOCK)
    yield ("--no-deps", "--no-build-isolation", "--editable", ".")


def install(options: tuple[str | Path, ...]) -> int:
    """Runs pip with these options and returns how many packages it installed. Raises NotInstalled."""
    pip = (ENVIRONMENT / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--no-input")
    command = (*pip, "install", "--progress-bar=off", *options)
    found, installed = 0, 0
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if _FOUND.match(line):
                found += 1
                if found % AT_A_TIME == 0:
                    print(f"  found {counted(found)} …", flush=True)
            elif names := _INSTALLING.match(line):
                installed = len(names[1].split(", "))
                print(f"  installing {counted(installed)} …", flush=True)
    if process.returncode:
        raise NotInstalled
    return installed


def counted(packages: int) -> str:
    """That many packages, in words."""
    return "1 package" if packages == 1 else f"{packages} packages"


def main() -> int:
    """Installs; returns the exit status."""
    try:
        make(sys.argv[1])
    except NotInstalled:
        return 1
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
