"""The documents are a site: links lead somewhere, every page has a place, the search finds what users look for."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from house.documents import CHECKOUT
from peers import install

pytestmark = pytest.mark.thorough

QUERIES = {
    "alerts": "checkout/grafana/index.html",
    "api key": "how-to/api-keys.html",
    "audit log": "audit.html",
    "claude code": "how-to/claude-code.html",
    "cors": "how-to/networks.html",
    "deny tool": "how-to/rules.html",
    "docker": "install.html",
    "entra": "how-to/entra.html",
    "environment variable": "configuration.html",
    "error code": "reference/errors.html",
    "getting started": "start/quickstart.html",
    "host without tasks": "hosts-without-tasks.html",
    "install": "install.html",
    "kubernetes": "install.html",
    "prometheus": "checkout/grafana/index.html",
    "rate limit": "concepts/limits.html",
    "redis": "how-to/replicas.html",
    "stdio server": "start/servers.html",
    "timeout": "operate/timeouts.html",
    "tls certificate": "how-to/tls.html",
}
"""Usual queries, and the page that each is for."""
SHOWN = 3
"""Pages that a reader sees without a look at the rest."""
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


def searched(site: Path, queries: Iterable[str]) -> dict[str, list[str]]:
    """What the search of a site finds for each query: pages, the best first."""
    try:
        node = install.node()
    except install.PeersNotInstalled as reason:
        if install.nothing_may_be_missing():
            raise
        pytest.skip(str(reason))
    program = Path(__file__).with_name("search.mjs")
    outcome = subprocess.run([node, program, site, *queries], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    found: dict[str, list[str]] = json.loads(outcome.stdout)
    return found


def test_usual_queries_find_their_page_among_the_first(site: Path) -> None:
    found = searched(site, QUERIES)
    assert {query: found[query][:SHOWN] for query, page in QUERIES.items() if page not in found[query][:SHOWN]} == {}


def test_the_search_leaves_out_decisions_requirements_and_rulings(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    pages = {each["location"].split("#")[0] for each in index["docs"]}
    assert {each for each in pages if re.match("decisions/|requirements|rulings", each)} == set()
    assert {"index.html", "how-to/rules.html", "architecture.html"} <= pages


def test_words_with_every_beginning_can_be_searched(site: Path) -> None:
    searched(site, "abcdefghijklmnopqrstuvwxyz0123456789_")


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
