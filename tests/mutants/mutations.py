"""What can be changed in a Lua script of the store, one place at a time: `mutants`.

A statement is left out, a condition negated, a loop not run, a comparison turned round, or `and` put for `or`. What is
left of a script must still be Lua; the server says so, and a mutant that is none is not one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_TURNED: Final = {"==": "~=", "~=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "and": "or", "or": "and"}
_OPERATOR: Final = re.compile(r"==|~=|<=|>=|<|>|\band\b|\bor\b")
_TEXT: Final = re.compile(r"'[^']*'")
_CONDITION: Final = re.compile(r"^(\s*)(if|elseif|while)\b(.*?)\b(then|do)\b(.*)$", re.DOTALL)
_LOOP: Final = re.compile(r"^(\s*)for\b.*?\bdo\b(.*)$", re.DOTALL)
_BLOCK: Final = re.compile(r"^\s*(local function|function|else|end|until|repeat|while true)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A script with one change; `name` is the file, what was done, and the statement it was done to."""

    script: str
    name: str
    text: str


def mutants(script: str, text: str) -> Iterator[Mutant]:
    """Every change of a script, in the order of its statements; each has a name of its own."""
    seen: dict[str, int] = {}
    for first, last, statement in _statements(text):
        for what, changed in _changes(statement):
            plain = " ".join(statement.split())
            name = f"{script}: {what}: {plain}"
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > 1:
                # The same words again, further down.
                name += f" ({seen[name]})"
            lines = text.splitlines(keepends=True)
            yield Mutant(script=script, name=name, text="".join([*lines[:first], changed + "\n", *lines[last:]]))


def _changes(statement: str) -> Iterator[tuple[str, str]]:
    if condition := _CONDITION.match(statement):
        space, word, asked, then, rest = condition.groups()
        yield "negated", f"{space}{word} not ({asked.strip()}) {then}{rest}"
        if statement.rstrip().endswith(" end") and word == "if":
            yield "left out", ""
    elif loop := _LOOP.match(statement):
        yield "not run", f"{loop[1]}while false do{loop[2]}"
    elif not _BLOCK.match(statement) and not statement.lstrip().startswith("local "):
        # Without its declaration no name is known, and any script fails at once.
        yield "left out", ""
    for place in _operators(statement):
        turned = _TURNED[place.group()]
        number = f" {place.group()} at {place.start() - len(statement) + len(statement.lstrip())}"
        yield f"turned{number}", f"{statement[: place.start()]}{turned}{statement[place.end() :]}"


def _operators(statement: str) -> Iterator["re.Match[str]"]:
    blank = _TEXT.sub(lambda found: " " * len(found.group()), statement)
    yield from _OPERATOR.finditer(blank)


def _statements(text: str) -> Iterator[tuple[int, int, str]]:
    """Each statement that does something, with the lines it takes; comments and empty lines are none."""
    lines, at = text.splitlines(), 0
    while at < len(lines):
        first, statement = at, lines[at]
        at += 1
        if not statement.strip() or statement.lstrip().startswith("--"):
            continue
        while _goes_on(statement) and at < len(lines):
            statement += "\n" + lines[at]
            at += 1
        yield first, at, statement


def _goes_on(statement: str) -> bool:
    bare = _TEXT.sub("", statement)
    return (
        bare.rstrip().endswith((",", "=", ".."))
        or bare.count("(") > bare.count(")")
        or bare.count("{") > bare.count("}")
    )
