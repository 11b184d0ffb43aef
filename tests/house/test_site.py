"""The documents are a site: links lead somewhere, every page has a place, nothing is loaded from elsewhere."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from house.documents import CHECKOUT

pytestmark = pytest.mark.thorough

COPIED = ("docs", "config", "grafana", "example", "tests", "proxy", "bench")


def built(checkout: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """The outcome of a strict build into a folder."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--site-dir",
            folder,
            "--config-file",
            checkout / "mkdocs.yml",
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    outcome = built(CHECKOUT, folder)
    assert outcome.returncode == 0, outcome.stderr
    return folder


def test_files_that_pages_lead_to_are_part_of_the_site(site: Path) -> None:
    assert [
        name for name in ("config/full.yaml", "grafana/runbooks.html") if not (site / "checkout" / name).is_file()
    ] == []


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|img|link|iframe)[^>]*(?:src|href)=\"?(https?://[^\"> ]+)")
    found = {url for page in site.rglob("*.html") for url in loaded.findall(page.read_text(encoding="utf-8"))}
    assert found == set()


@pytest.mark.parametrize(
    ("added", "told"),
    [
        ("[a](nowhere.md)", "nowhere.md"),
        ("[a](start/hosts.md#nowhere)", "#nowhere"),
        ("[a](../config/nowhere.yaml)", "nowhere.yaml"),
    ],
)
def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path, added: str, told: str) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for each in CHECKOUT.iterdir():
        if each.name == "docs":
            shutil.copytree(each, copy / each.name)
        elif each.name in COPIED:
            (copy / each.name).symlink_to(each)
        elif each.is_file():
            shutil.copy(each, copy)
    with (copy / "docs" / "index.md").open("a", encoding="utf-8") as index:
        index.write(f"\n{added}\n")
    outcome = built(copy, tmp_path / "site")
    assert outcome.returncode == 1
    assert told in outcome.stderr
