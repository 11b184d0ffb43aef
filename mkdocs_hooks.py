"""What mkdocs cannot do by itself: pages of docs/ link to files of the checkout, and these become part of the site.

A file that a page links to outside of `docs/` is at `checkout/PATH`. Markdown among them is a page, with its own links
treated alike. A link to a folder becomes plain text. What does not exist is a warning, which ends a strict build.

The search finds what users look for: pages of some tabs weigh more, and what only maintainers read is left out.
"""

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent
DOCS = ROOT / "docs"
OUTSIDE = "checkout/"
UNSEARCHED = ("decisions/", "requirements.md", "rulings.md")
WEIGHTS = {"Start": 2, "How-to": 2, "Operate": 2, "Contribute": 0.5}
"""By the tab of a page. Other tabs weigh 1, and pages without a tab a half, as the changelog does."""
log = logging.getLogger("mkdocs.hooks")

_LABEL_AND_NUMBER = "e=e+s+o.id"
"""Where the worker of the theme writes them: `on_post_build` ends each with a mark."""
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<text>!?\[(?:[^\[\]]|\[[^\[\]]*\])*\])\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds each file outside of docs/ that a page leads to."""
    waiting = list(DOCS.rglob("*.md"))
    waiting += [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md")]
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        if not path.is_relative_to(DOCS):
            added = File.generated(config, _uri(path), abs_src_path=str(path))
            added.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(added)
        if path.suffix == ".md":
            waiting += [each for each in _targets(path) if each.is_file() and not each.is_relative_to(DOCS)]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The text with its links to the checkout led to where the site has these files."""
    here = _path(page.file.src_uri)
    page.meta["search"] = _search(page)

    def led(found: re.Match[str]) -> str:
        text, target, anchor = found["text"], found["target"], found["anchor"] or ""
        if "://" in target or target.startswith("mailto:"):
            return found.group()
        path = Path(posixpath.normpath(here.parent / target))
        if path.is_dir():
            return text[1:-1]
        if not path.exists():
            log.warning("%s has a link to %s, which does not exist", page.file.src_uri, target)
        return f"{text}({posixpath.relpath(_uri(path), posixpath.dirname(page.file.src_uri) or '.')}{anchor})"

    parts = _FENCE.split(markdown)
    return "".join(part if _FENCE.fullmatch(part) else _LINK.sub(led, _with_room(part)) for part in parts)


def on_post_build(config: MkDocsConfig) -> None:
    """Mends the search engine, which compares nodes of its word list by their labels and numbers, written in a row.

    A label that is a digit makes two nodes look alike, and one takes the place of the other. The list then has words
    that the index lacks, and a query fails if one of them begins with it.
    """
    workers = list(Path(config.site_dir).glob("assets/javascripts/workers/search.*.min.js"))
    for worker in workers:
        text = worker.read_text(encoding="utf-8")
        if text.count(_LABEL_AND_NUMBER) != 1:
            log.warning("%s has no %r: does the engine still need to be mended?", worker.name, _LABEL_AND_NUMBER)
        worker.write_text(text.replace(_LABEL_AND_NUMBER, f'{_LABEL_AND_NUMBER}+";"'), encoding="utf-8")
    if not workers:
        log.warning("the site has no worker for its search")


def _search(page: Page) -> dict[str, Any]:
    """What the index of the search does with a page."""
    if page.file.src_uri.startswith(UNSEARCHED):
        return {"exclude": True}
    tab = page.ancestors[-1].title if page.ancestors else ""
    return {"boost": WEIGHTS.get(tab, 1 if tab else 0.5)}


def _with_room(text: str) -> str:
    """Has an empty line before each list: without one, Python-Markdown takes it for text."""
    return re.sub(r"^(?!(?: *[-*+] | *\d+\. | *\||$| {2,}))(.+)\n(?=(?:[-*+]|\d+\.) )", r"\1\n\n", text, flags=re.M)


def _targets(path: Path) -> list[Path]:
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    found = [each["target"] for each in _LINK.finditer(text) if "://" not in each["target"]]
    return [Path(posixpath.normpath(path.parent / each)) for each in found]


def _uri(path: Path) -> str:
    return str(path.relative_to(DOCS)) if path.is_relative_to(DOCS) else OUTSIDE + str(path.relative_to(ROOT))


def _path(uri: str) -> Path:
    return ROOT / uri.removeprefix(OUTSIDE) if uri.startswith(OUTSIDE) else DOCS / uri
