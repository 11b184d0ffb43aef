"""The interaction suites know the gateway from outside: of the package they import nothing, but through one helper.

What is inside can then be made anew, and they still say whether the gateway does what it did.
"""

import ast
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SUITES = CHECKOUT / "tests" / "interaction"
STILL_INSIDE = Path(__file__).with_name("interaction_inside.txt")
"""The files that still import what is inside, one a line. It only ever gets shorter."""


def imports_the_package(source: str) -> bool:
    """Whether any statement imports the package, or a part of it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "taskgate":
            return True
        if isinstance(node, ast.Import) and any(name.name.split(".")[0] == "taskgate" for name in node.names):
            return True
    return False


def test_suites_that_know_the_inside_are_those_on_the_list() -> None:
    inside = {file.name for file in SUITES.glob("*.py") if imports_the_package(file.read_text())}
    assert inside == set(STILL_INSIDE.read_text().split())


def test_an_import_of_the_package_is_seen_wherever_it_stands() -> None:
    assert imports_the_package("def f():\n    from taskgate.clock import Clock\n")
    assert imports_the_package("import taskgate.clock as c\n")
    assert imports_the_package("from taskgate import cli\n")
    assert not imports_the_package("from helpers.whole_gateway import running\nimport taskgateway\n")
