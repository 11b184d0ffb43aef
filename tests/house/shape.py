"""A report on the shape of the package, printed by `make check`: what has grown, and which names repeat.

It judges nothing: a count does not say where to cut a module. Run it as a program.
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2] / "proxy" / "taskgate"
SHOWN = 10
"""Rows of each list."""
WIDE = 14
"""Files in a folder, above which it is shown."""


class Shape(NamedTuple):
    """Each list has the largest first, as (number, name)."""

    modules: list[tuple[int, str]]
    functions: list[tuple[int, str]]
    folders: list[tuple[int, str]]
    imports: list[tuple[int, str]]
    classes: list[tuple[int, str]]


def shape_of(package: Path) -> Shape:
    """The lines of modules and functions, files of folders, imports of modules, and names of several classes."""
    modules, functions, imports = list[tuple[int, str]](), list[tuple[int, str]](), list[tuple[int, str]]()
    folders, classes = Counter[str](), defaultdict[str, set[str]](set)
    for file in sorted(package.rglob("*.py")):
        source, name = file.read_text(), str(file.relative_to(package))
        tree = ast.parse(source)
        modules.append((len(source.splitlines()), name))
        imports.append((len({*_imported(tree, package.name)}), name))
        if file.name != "__init__.py":
            folders[str(file.parent.relative_to(package))] += 1
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].add(name)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append(((node.end_lineno or node.lineno) - node.lineno + 1, f"{name}: {node.name}"))
    wide = [(count, folder) for folder, count in folders.items() if count > WIDE]
    repeated = [(len(places), name) for name, places in classes.items() if len(places) > 1]
    return Shape(*(sorted(each, reverse=True) for each in (modules, functions, wide, imports, repeated)))


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == package:
            yield node.module


def report(package: Path) -> str:
    """The shape as text for people."""
    shape = shape_of(package)
    lines = [f"{len(shape.modules)} modules, {sum(count for count, _ in shape.modules)} lines"]
    for title, rows, shown in (
        ("longest modules (lines)", shape.modules, SHOWN),
        ("longest functions (lines)", shape.functions, SHOWN),
        (f"folders of more than {WIDE} files", shape.folders, None),
        ("widest imports (modules of the package)", shape.imports, SHOWN),
        (f"class names that repeat ({len(shape.classes)})", shape.classes, SHOWN),
    ):
        lines += ["", title, *(f"  {count:5} {name}" for count, name in rows[:shown])]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(report(PACKAGE) + "\n")
