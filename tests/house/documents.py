"""The documents as data: their pages, blocks of code, commands, links and sentences. Run as a program, the prose lint.

A sentence of a page has at most 30 words, and none of those that the lint of the code retires. Links' targets and
comments are no words, and code in a row is one. Each cell of a table is a text of its own. `documents_exempt.txt` has
pages that wait to be rewritten, and can only shrink.
"""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "tests")]

from house.prose import WORDS  # noqa: E402

DOCS = CHECKOUT / "docs"
EXEMPT = Path(__file__).with_name("documents_exempt.txt")
LONGEST = 30
"""Words of a sentence; 25 are the aim."""
DECISIONS = DOCS / "decisions"

_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_ITEM = re.compile(r"([-*+]|\d+\.) ")
_ENDS = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)[)\"'”*]*\s+|(?<=[:;])\s+(?=[A-Z_(\"0-9“*]|code)")
"""Where a sentence ends. A colon or a semicolon ends one before a name, a number or code."""
_PROGRAM = re.compile(r"(?:\.venv/bin/)?taskgate (.+)")


class Fence(NamedTuple):
    """A fenced block of a page, by its language."""

    page: Path
    language: str
    text: str


class Sentence(NamedTuple):
    """A sentence of a page, with the line that its paragraph begins on."""

    page: Path
    line: int
    text: str

    @property
    def words(self) -> int:
        """The number of its words."""
        return len(self.text.split())

    def __str__(self) -> str:
        return f"{self.page.relative_to(CHECKOUT)}:{self.line}: sentence of {self.words} words: {self.text}"


def pages() -> list[Path]:
    """Every page that people read."""
    top = [CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md")]
    return [*top, *sorted(DOCS.rglob("*.md")), *sorted((CHECKOUT / "grafana").glob("*.md"))]


def fences(page: Path) -> list[Fence]:
    """The fenced blocks of a page, without their indentation."""
    found = []
    for indent, language, text in _FENCED.findall(page.read_text(encoding="utf-8")):
        found.append(Fence(page, language, "".join(line.removeprefix(indent) for line in text.splitlines(True))))
    return found


def without_fences(text: str) -> str:
    """The text with an empty line for each line of a fenced block or a comment."""
    for pattern in (_FENCED, _COMMENT):
        text = pattern.sub(lambda found: "\n" * found.group().count("\n"), text)
    return text


def shown_lines(page: Path) -> Iterator[str]:
    """The command lines of a page: of shell blocks, of blocks without a language, and indented ones."""
    for each in fences(page):
        if each.language in {"", "sh", "text"}:
            yield from (line.strip() for line in each.text.replace("\\\n", " ").splitlines())
    for line in without_fences(page.read_text(encoding="utf-8")).splitlines():
        if line.startswith("    "):
            yield line.split("#")[0].strip()


def shown_commands(page: Path) -> list[list[str]]:
    """The words of each whole command of taskgate that a page shows, up to a pipe or a redirection."""
    found = [_PROGRAM.fullmatch(line.removeprefix("ref=$(").removesuffix(")")) for line in shown_lines(page)]
    return [shlex.split(re.split(r" [>|&]", each[1])[0]) for each in found if each is not None]


def named_commands(page: Path) -> list[list[str]]:
    """The words of each command of taskgate that the text of a page names, such as `taskgate check --print`."""
    text = without_fences(page.read_text(encoding="utf-8"))
    return [re.sub(r"[\[\]]|\.\.\.", " ", each).split() for each in re.findall(r"`taskgate ([^`]+)`", text)]


def sentences(page: Path) -> Iterator[Sentence]:
    """The sentences of a page."""
    for line, text in _paragraphs(page.read_text(encoding="utf-8")):
        for each in _ENDS.split(_plain(text)):
            yield Sentence(page, line, each)


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, items, headings and cells, each with the line that it begins on."""
    gathered: list[str] = []
    begun = 0
    # An indented block after an empty line is code, unless it belongs to an item.
    text = re.sub(r"(?<=\n\n)(?: {4}.*\n)+", lambda found: "\n" * found.group().count("\n"), text)
    for number, line in enumerate([*without_fences(text).splitlines(), ""], 1):
        stripped = line.strip()
        if gathered and (not stripped or stripped[0] in "|#" or _ITEM.match(stripped)):
            yield begun, " ".join(gathered)
            gathered = []
        if stripped.startswith("|"):
            yield from ((number, cell) for cell in re.split(r"(?<!\\)\|", stripped.strip("|")))
        elif stripped:
            begun = begun if gathered else number
            gathered.append(stripped)


def _plain(text: str) -> str:
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"(?:`[^`]*`(?:, | and | or |, and |, or )?)+", "code ", text)
    return _ITEM.sub("", text, count=1)


def exempt() -> list[Path]:
    """The pages whose sentences are not judged yet."""
    return [CHECKOUT / name for name in EXEMPT.read_text(encoding="utf-8").split()]


def judged() -> list[Path]:
    """The pages whose sentences are judged."""
    return [page for page in pages() if page not in exempt()]


def long_sentences(page: Path) -> list[Sentence]:
    """The sentences of a page that are too long."""
    return [each for each in sentences(page) if each.words > LONGEST]


def retired_words(page: Path) -> list[str]:
    """The words of a page that the lint of the code retires, each with its place."""
    return [
        f"{each.page}:{each.line}: retired word: {word.group()}"
        for each in sentences(page)
        for word in WORDS.finditer(each.text)
    ]


def main() -> int:
    found = [str(each) for page in judged() for each in [*long_sentences(page), *retired_words(page)]]
    for each in found:
        print(each)  # noqa: T201
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
