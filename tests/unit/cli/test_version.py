"""`taskgate version` and `taskgate completion`."""

import json
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from helpers.command_line import run
from helpers.gateway.process import TASKGATE
from taskgate import __version__
from taskgate.domain.versions import SERVED


def test_the_versions_are_printed_for_people_and_for_programs() -> None:
    status, out, _ = run("version")
    assert status == 0
    assert f"taskgate  {__version__}\n" in out
    assert f"aiohttp   {version('aiohttp')}\n" in out
    status, out, _ = run("version", "--json")
    document = json.loads(out)
    assert (status, document["taskgate"], document["aiohttp"]) == (0, __version__, version("aiohttp"))
    assert {*document["revisions"]["legacy"], *document["revisions"]["modern"]} == {*map(str, SERVED)}


# For bash, click looks at the version of the shell.
@pytest.mark.program
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_asks_the_program_for_completions(shell: str) -> None:
    status, out, _ = run("completion", shell)
    assert status == 0
    assert f"_TASKGATE_COMPLETE={shell}_complete" in out


def test_another_shell_is_refused() -> None:
    assert run("completion", "tcsh")[0] == 2


@pytest.mark.program
def test_bash_completes_commands_with_the_script(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = tmp_path / "script"
    script.write_text(
        f'eval "$({TASKGATE} completion bash)"\nCOMP_WORDS=({TASKGATE} heal)\nCOMP_CWORD=1\n'
        f'_taskgate_completion {TASKGATE}\necho "${{COMPREPLY[@]}}"\n'
    )
    ended = subprocess.run([bash, "--norc", script], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.stdout, ended.stderr) == ("health\n", "")
