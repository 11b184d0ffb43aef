"""The interaction suites know the gateway from outside: of the package they import nothing, but through the harness.

What is inside can then be made anew, and they still say whether the gateway does what it did.
"""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

TESTS = Path(__file__).resolve().parents[1]
SUITES = TESTS / "interaction"
EVERYWHERE = TESTS / "conftest.py"
FOR_EVERY_TEST = {
    "taskgate.wiring.reload": "what fingerprints cost, of which tests do not pay the usual",
    "taskgate.stores.redis.options": "where the stores are that fixtures start",
    "taskgate.telemetry.auditlog.chain": "ears for secrets in lines of audit logs",
    "taskgate.telemetry.ring": "ears for secrets in events",
}
"""The modules that the fixtures of every test may reach beside the door, and for what."""
DOOR = {
    "taskgate": "its version",
    "taskgate.admission.memory_pressure": "what `Environment.pressure` is",
    "taskgate.auth.key_file": "the key of what is encrypted in the file of a store",
    "taskgate.clock": "the protocols of time and chance, and the machine's own",
    "taskgate.cluster.encryption": "what is encrypted there",
    "taskgate.cluster.message_auth": "the keys that are made of that key",
    "taskgate.config": "a configuration, from a file or from what would stand there",
    "taskgate.errors": "what a store that fails raises",
    "taskgate.stores.base": "the protocol of a store",
    "taskgate.stores.open": "stores to hand in, and where a shared one is",
    "taskgate.wiring.app": "one gateway, from its start to its end",
    "taskgate.wiring.build": "what it is handed",
}
"""The modules that helpers of these suites may import, and for what; `helpers.gateway.gateway` says more."""


def imported(source: str) -> Iterator[tuple[str, str]]:
    """What is imported, wherever the statement stands: a module, and a name of it, or none."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names)


def patched(source: str) -> Iterator[tuple[str, str]]:
    """What a text names that is handed to `monkeypatch.setattr`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            match node.args:
                case [ast.Constant(value=str(named)), *_]:
                    yield named.rpartition(".")[0], named.rpartition(".")[2]


def looked_up(source: str) -> Iterator[tuple[str, str]]:
    """The modules that a text gets by their names, from `sys.modules` or with `import_module`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(ast.Attribute(attr="get" | "import_module") | ast.Name("import_module"), [given, *_]):
                key = given
            case ast.Subscript(ast.Attribute(attr="modules"), key):
                pass
            case _:
                continue
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, ""


def parts_of_the_package(source: str) -> set[str]:
    """The modules of the package that a file imports, patches, or gets by their names."""
    reached = (*imported(source), *patched(source), *looked_up(source))
    found = {each for each in reached if each[0].split(".")[0] == "taskgate"}
    return {_module_of(module, name) for module, name in found}


def _module_of(module: str, name: str) -> str:
    try:
        within = importlib.import_module(module)
    except ModuleNotFoundError:
        # A class of a module, of which something is patched.
        return _module_of(*module.rpartition(".")[::2])
    if name and (not hasattr(within, name) or isinstance(getattr(within, name), ModuleType)):
        return f"{module}.{name}"
    return module


def helpers_of(files: set[Path]) -> set[Path]:
    """Those files, and all of the tests that they import, and that those do."""
    known: set[Path] = set()
    waiting = set(files)
    while waiting:
        file = waiting.pop()
        known.add(file)
        named = {
            TESTS.joinpath(*f"{module}.{name}".strip(".").split(".")) for module, name in imported(file.read_text())
        }
        named = {each.with_suffix(".py") for each in named | {each.parent for each in named}}
        waiting |= {other for other in named if other.exists()} - known
    return known


def test_nothing_is_left_on_the_list_of_those_that_did() -> None:
    assert Path(__file__).with_name("interaction_inside.txt").read_text() == ""


def test_suites_know_nothing_of_the_inside() -> None:
    inside = {file.name: found for file in SUITES.glob("*.py") if (found := parts_of_the_package(file.read_text()))}
    assert inside == {}


def test_what_they_import_comes_in_by_the_door() -> None:
    found = {file: parts_of_the_package(file.read_text()) for file in helpers_of(set(SUITES.glob("*.py")))}
    beside = {str(file.relative_to(TESTS)): parts - DOOR.keys() for file, parts in found.items()}
    assert {file: parts for file, parts in beside.items() if parts} == {}
    assert set().union(*found.values()) == DOOR.keys(), "the door is no wider than it has to be"


def test_what_every_test_gets_reaches_no_more_than_is_said() -> None:
    found = [parts_of_the_package(file.read_text()) for file in helpers_of({EVERYWHERE})]
    assert set().union(*found) - DOOR.keys() == FOR_EVERY_TEST.keys()


def test_suites_leave_the_service_to_the_harness() -> None:
    for file in SUITES.glob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text()))
        assert not [node for node in nodes if isinstance(node, ast.Attribute) and node.attr == "service"], file


def test_whatever_is_imported_is_seen_wherever_it_stands() -> None:
    assert parts_of_the_package("def f():\n    from taskgate.clock import Clock\n") == {"taskgate.clock"}
    assert parts_of_the_package("import taskgate.clock as c\n") == {"taskgate.clock"}
    assert parts_of_the_package("from taskgate import clock\n") == {"taskgate.clock"}
    assert parts_of_the_package("p.setattr('taskgate.clock.SystemClock', 1)\n") == {"taskgate.clock"}
    assert parts_of_the_package("sys.modules.get('taskgate.clock')\n") == {"taskgate.clock"}
    assert parts_of_the_package("sys.modules['taskgate.clock']\n") == {"taskgate.clock"}
    assert parts_of_the_package("importlib.import_module('taskgate.clock')\n") == {"taskgate.clock"}
    assert parts_of_the_package("from helpers.gateway.gateway import serve\nimport taskgateway\n") == set()
