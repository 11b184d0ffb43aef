"""The messages of the log, as the package's calls have them: read from its source, without running it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import taskgate

PACKAGE: Final = Path(taskgate.__file__).parent
LEVELS: Final = {"debug", "info", "warning", "error", "exception", "critical"}
THROTTLED: Final = {"ThrottledLog", "KeyedLog"}
"""Classes that log one text; it is their second argument."""
HELPERS: Final = {"_warning": "warning", "_lose": "warning", "_report": None}
"""Functions that log the text that they are called with, and its level if that is always the same."""


class LogMessage(NamedTuple):
    """A message with `…` for what varies, its level if the call shows it, and the fields that it shows."""

    text: str
    level: str | None
    fields: frozenset[str]


def log_messages() -> list[LogMessage]:
    """Every message of the package."""
    return [message for file in sorted(PACKAGE.rglob("*.py")) for message in messages_in(file.read_text("utf-8"))]


def messages_in(source: str) -> list[LogMessage]:
    """The messages of one module. ValueError for a call whose text cannot be read."""
    tree = ast.parse(source)
    texts = {
        target.id: node.value
        for node in ast.walk(tree)
        for target in _targets(node)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.expr)
    }
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        for text, level in _logged(node, names):
            message = _text(text, texts)
            if message is not None:
                found.append(LogMessage(message, level, _fields(node)))
    return found


def _logged(call: ast.Call, names: set[str]) -> Iterator[tuple[ast.expr, str | None]]:
    """The text that a call logs, and the level."""
    match call.func:
        case ast.Attribute(value=logger, attr=method) if re.search(r"\blog$|_log$", ast.unparse(logger)):
            if method in LEVELS:
                yield call.args[0], "error" if method == "exception" else method
            elif method == "log":
                yield call.args[1], _level(call.args[0])
        case ast.Name(id=name) if name in THROTTLED:
            level = next((_level(each.value) for each in call.keywords if each.arg == "level"), "warning")
            yield call.args[1], level
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in HELPERS and name in names and call.args:
            if isinstance(call.args[0], ast.Constant | ast.JoinedStr):
                yield call.args[0], HELPERS[name]


def _level(node: ast.expr) -> str | None:
    name = ast.unparse(node).rpartition(".")[2].lower()
    return name if name in LEVELS else None


def _targets(node: ast.AST) -> Iterator[ast.Name]:
    for each in getattr(node, "targets", [getattr(node, "target", None)]):
        if isinstance(each, ast.Name):
            yield each


def _text(node: ast.expr, texts: dict[str, ast.expr]) -> str | None:
    """The text of an expression; None for the parameter of a helper, whose calls have the text."""
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"%[sd]", "…", text)
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, texts) or "" if isinstance(part, ast.Constant) else "…" for part in parts)
        case ast.Name(id=name) if name in texts:
            return _text(texts[name], texts)
        case ast.Name(id=name) if name in {"text", "what", "reason"}:
            return None
        case ast.Attribute(attr="_text"):
            return None
    raise ValueError(f"line {node.lineno}: no text that can be read: {ast.unparse(node)}")


def _fields(call: ast.Call) -> frozenset[str]:
    extra = next((each.value for each in call.keywords if each.arg == "extra"), None)
    keys = [key for each in ast.walk(extra) if isinstance(each, ast.Dict) for key in each.keys] if extra else []
    return frozenset(str(key.value) for key in keys if isinstance(key, ast.Constant))
