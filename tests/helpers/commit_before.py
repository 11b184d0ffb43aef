"""The package as an earlier commit has it: what stored or sent something is still out there while this one starts.

`COMMIT` is the last one before names changed all over the house. Its files come out of the repository's own history;
where a checkout has none, the tests that need it are skipped.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

COMMIT = "2dc741e"
CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def commit_before(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment in which `taskgate` is that commit's."""
    return package_of(COMMIT, tmp_path_factory.mktemp("before"))


def package_of(commit: str, folder: Path) -> Mapping[str, str]:
    """The environment in which `taskgate` is that of a commit, whose files go into the folder."""
    packed = subprocess.run(
        ["git", "archive", "--format=tar", commit, "proxy"], cwd=CHECKOUT, capture_output=True, timeout=60, check=False
    )
    if packed.returncode != 0:
        pytest.skip(f"the history of this checkout does not reach back to {commit}")
    subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, timeout=60, check=True)
    return {"PYTHONPATH": str(folder / "proxy")}
