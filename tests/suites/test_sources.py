"""A source package is unpacked into its environment if its hash is the one that is written down."""

import hashlib
import io
import tarfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from shutil import copy
from types import ModuleType

import pytest
from example import environments

pytestmark = pytest.mark.program

NAME = "suite-rows-1.0"
BACKEND = """
import os

def prepare_metadata_for_build_wheel(folder, settings=None):
    os.mkdir(f"{folder}/rows-1.0.dist-info")
    with open(f"{folder}/rows-1.0.dist-info/METADATA", "w") as file:
        file.write("Metadata-Version: 2.1\\nName: rows\\nVersion: 1.0\\n")
    return "rows-1.0.dist-info"
"""
FILES = {
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    "backend.py": BACKEND,
    "tests/rows.txt": "first\n",
}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of environments in another checkout, with one for a source package that pip finds."""
    with tarfile.open(tmp_path / "rows-1.0.tar.gz", "w:gz") as archive:
        for name, text in FILES.items():
            member = tarfile.TarInfo(f"rows-1.0/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    (tmp_path / "example").mkdir()
    spec = spec_from_file_location("environments", copy(environments.__file__, tmp_path / "example"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.PINS[NAME] = ["pip"]
    digest = hashlib.sha256((tmp_path / "rows-1.0.tar.gz").read_bytes()).hexdigest()
    module.SOURCES[NAME] = module.Source("rows==1.0", digest)
    return module


def test_a_package_with_its_hash_is_unpacked_once(made: ModuleType) -> None:
    assert [made.ensure(NAME), made.ensure(NAME)] == [True, False]
    assert (made.source_of(NAME) / "tests" / "rows.txt").read_text() == "first\n"


def test_a_package_with_another_hash_makes_no_environment(made: ModuleType) -> None:
    made.SOURCES[NAME] = made.Source("rows==1.0", hashlib.sha256(b"another").hexdigest())
    with pytest.raises(made.EnvironmentNotMade, match="HASHES"):
        made.ensure(NAME)
    assert not made.source_of(NAME).exists()
