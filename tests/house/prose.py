"""A prose lint for docstrings, comments and messages: short sentences, and words that a stranger knows.

`prose_exempt.txt` lists the folders that wait for their rewrite. It can only shrink: a listed
folder without a finding fails. Run as a program, this prints every finding of the folders given, or
of those that are not exempt.
"""

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "proxy" / "taskgate"
EXEMPT = Path(__file__).with_name("prose_exempt.txt")
LONGEST = 25
"""Words of a sentence."""
WORDS = re.compile(
    r"\b(whoever|whomever|somebody|nobody|anybody|everybody|for whom|what of|that which|it is that|"
    r"(?:is|are|was|were|be|been) (?:had|told of|gone on with|left alone|let go|hearsay))\b",
    re.IGNORECASE,
)
OPENERS = re.compile(
    r"(What|Whatever|How|Where|Who|Whose|Whom|It|This|That|These|Those|There|Nothing|Everything|Does|Is|Are)\b"
)
"""First words that are no noun phrase."""
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


class Finding(NamedTuple):
    """A place in a file, and the rule that it breaks."""

    file: Path
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.text}"


def findings(file: Path, source: str) -> list[Finding]:
    """Every finding of one module, by line."""
    tree = ast.parse(source)
    found = [
        Finding(file, line, rule, text)
        for line, rule, text in [*_docstrings(tree), *_messages(tree), *_comments(source)]
    ]
    return sorted(found, key=lambda each: each.line)


def folder_of(file: Path) -> str:
    """The folder of a module below the package, `.` for the package itself."""
    return str(file.relative_to(PACKAGE).parent)


def exempt() -> list[str]:
    """The folders that are not judged yet."""
    return EXEMPT.read_text().split()


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = node.body
        text = ast.get_docstring(node)
        yield from _attribute_docstrings(body)
        if text is None:
            continue
        line = body[0].lineno
        first = text.split("\n\n")[0].replace("\n", " ")
        if isinstance(node, ast.Module | ast.ClassDef) and OPENERS.match(first):
            yield line, "opener", first
        if re.fullmatch(r"See [\w. `]+\.", text):
            yield line, "pointer", text
        if not isinstance(node, ast.Module | ast.ClassDef) and _is_override(node):
            yield line, "override", text
        yield from _prose(line, text)


def _attribute_docstrings(body: list[ast.stmt]) -> Iterator[tuple[int, str, str]]:
    for before, node in pairwise(body):
        if isinstance(before, ast.Assign | ast.AnnAssign) and _text(node) is not None:
            yield from _prose(node.lineno, _text(node) or "")


def _text(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return None


def _is_override(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id == "override" for mark in node.decorator_list)


def _messages(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """The texts of errors, of log lines, and of options of the command line."""
    for node in ast.walk(tree):
        spoken: list[ast.expr] = []
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            spoken = [*node.exc.args, *(each.value for each in node.exc.keywords)]
        elif isinstance(node, ast.Assert) and node.msg is not None:
            spoken = [node.msg]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOG_METHODS:
            spoken = node.args[:1]
        elif isinstance(node, ast.keyword) and node.arg in {"help", "why", "message", "reason"}:
            spoken = [node.value]
        for each in spoken:
            text = _constant(each)
            if " " in text:
                yield from _prose(each.lineno, text)


def _constant(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_constant(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return ""


def _comments(source: str) -> Iterator[tuple[int, str, str]]:
    """Comments, those on lines that follow each other as one."""
    begun, text, last = 0, "", -1
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type != tokenize.COMMENT or re.match(r"# (---|type:|noqa)", token.string):
            continue
        line = token.start[0]
        alone = token.line.lstrip().startswith("#")
        if alone and line == last + 1:
            text += " " + token.string.lstrip("# ")
        else:
            yield from _prose(begun, text)
            begun, text = line, token.string.lstrip("# ")
        last = line if alone else -1
    yield from _prose(begun, text)


def _prose(line: int, text: str) -> Iterator[tuple[int, str, str]]:
    for word in WORDS.finditer(text):
        yield line, "word", word.group()
    for sentence in sentences(text):
        if len(sentence.split()) > LONGEST:
            yield line, f"sentence of {len(sentence.split())} words", sentence


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text. A blank line, an indented line and a list item begin another."""
    for paragraph in re.split(r"\n\s*\n|\n(?=\s{2}|\s*[-*|>] |\s*\d+\. )", text):
        yield from re.split(r"(?<=[.!?])[)\"'”]*\s+(?=[A-Z`_(\"0-9“])", " ".join(paragraph.split()))


def judged(folders: list[str]) -> Iterator[Finding]:
    """The findings of some folders of the package."""
    for file in sorted(PACKAGE.rglob("*.py")):
        if folder_of(file) in folders:
            yield from findings(file.relative_to(CHECKOUT), file.read_text())


def folders() -> list[str]:
    """Every folder of the package that has modules."""
    return sorted({folder_of(file) for file in PACKAGE.rglob("*.py")})


def main(arguments: list[str]) -> int:
    asked = arguments or [folder for folder in folders() if folder not in exempt()]
    found = list(judged(asked))
    for each in found:
        print(each)  # noqa: T201
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
