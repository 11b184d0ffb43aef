"""No frame of the package lets an error pass that refers to it: error and frame would be a cycle (decision 0113).

An error has the frames that it passed, and a frame its local variables. So a frame that an error may leave has no
variable with the error, or with a task or future that has it: it awaits what a call returns, deletes the variable in a
`finally`, or raises a copy of a stored error.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import taskgate

PACKAGE = Path(taskgate.__file__).parent
MODULES = {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
Function = ast.FunctionDef | ast.AsyncFunctionDef
_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
FUTURES = ("Future[", "Task[")
OF_THE_LIBRARY = {"create_task", "ensure_future", "run_in_executor", "current_task", "run_coroutine_threadsafe"}


@cache
def functions(tree: ast.AST) -> tuple[Function, ...]:
    return tuple(each for each in ast.walk(tree) if isinstance(each, Function))


def annotation(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node).strip("'")


def has_future(node: ast.expr | None) -> bool:
    """Whether an annotation is of a task or a future; one of None is a signal, which never gets an error."""
    text = annotation(node)
    return (
        any(name in text for name in FUTURES) and "Future[None]" not in text and not text.startswith(("set[", "dict["))
    )


def makers(modules: dict[str, ast.Module]) -> set[str]:
    """The functions that return a task or a future which may have an error."""
    own = {each.name for tree in modules.values() for each in functions(tree) if has_future(each.returns)}
    return own | OF_THE_LIBRARY


def called(value: ast.expr | None) -> str:
    match value:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name
    return ""


@cache
def own_nodes(function: Function) -> tuple[ast.AST, ...]:
    """The nodes of a function, without those of functions within it."""
    nodes: list[ast.AST] = list(function.body)
    for node in nodes:
        if not isinstance(node, _INNER):
            nodes += ast.iter_child_nodes(node)
    return tuple(nodes)


def deleted(function: Function) -> set[str]:
    """The variables that a `finally` deletes."""
    finals = (each for node in own_nodes(function) if isinstance(node, ast.Try) for each in node.finalbody)
    deletions = (each for statement in finals for each in ast.walk(statement) if isinstance(each, ast.Delete))
    return {ast.unparse(target) for each in deletions for target in each.targets}


def emptied(function: Function) -> set[str]:
    """The attributes that a `finally` sets."""
    finals = (each for node in own_nodes(function) if isinstance(node, ast.Try) for each in node.finalbody)
    return {ast.unparse(target) for each in finals if isinstance(each, ast.Assign) for target in each.targets}


def futures_of(function: Function, made_by: set[str]) -> set[str]:
    """The variables of a function that have a task or a future which may have an error."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return {each.arg for each in arguments if has_future(each.annotation)} | assigned(function, made_by)


def assigned(function: Function, made_by: set[str]) -> set[str]:
    """The variables that have what one of these functions returned."""
    found: set[str] = set()
    for node in own_nodes(function):
        match node:
            case ast.Assign(targets=targets, value=value) if called(value) in made_by:
                found |= {each.id for each in targets if isinstance(each, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind, value=value) if called(value) in made_by:
                found |= {name} if has_future(kind) else set()
            case ast.NamedExpr(target=ast.Name(id=name), value=value) if called(value) in made_by:
                found.add(name)
    return found


def attributes_of(tree: ast.Module) -> set[str]:
    """The attributes of a module that are futures which may have an error."""
    declared = (each for each in ast.walk(tree) if isinstance(each, ast.AnnAssign) and has_future(each.annotation))
    return {each.target.attr for each in declared if isinstance(each.target, ast.Attribute)}


def waits(function: Function) -> Iterator[ast.expr]:
    """What a function awaits, or asks for its result: an error may come of it."""
    calls = [n.func for n in own_nodes(function) if isinstance(n, ast.Call)]
    asked = {ast.unparse(n.value) for n in calls if isinstance(n, ast.Attribute) and n.attr == "exception"}
    for node in own_nodes(function):
        match node:
            case ast.Await(value=ast.Call(func=ast.Attribute(attr="shield" | "wait_for"), args=[value, *_])):
                yield value
            case ast.Await(value=value):
                yield value
            case ast.Call(func=ast.Attribute(attr="result", value=value), args=[]) if ast.unparse(value) not in asked:
                yield value


def remembered(modules: dict[str, ast.Module]) -> list[str]:
    """The places where an error passes a frame that has the error's task or future."""
    made_by, found = makers(modules), []
    for path, tree in modules.items():
        sets_errors = any(isinstance(n, ast.Attribute) and n.attr == "set_exception" for n in ast.walk(tree))
        attributes = attributes_of(tree) if sets_errors else set()
        for function in functions(tree):
            risky = futures_of(function, made_by | {"create_future"} if sets_errors else made_by)
            for value in waits(function):
                if isinstance(value, ast.Name) and value.id in risky - deleted(function):
                    found.append(f"{path}:{value.lineno} {function.name} awaits {value.id}")
                name = ast.unparse(value)
                if isinstance(value, ast.Attribute) and value.attr in attributes and name not in emptied(function):
                    found.append(f"{path}:{value.lineno} {function.name} awaits {name}")
            if isinstance(function, ast.AsyncFunctionDef):
                found += [
                    f"{path}:{function.lineno} {function.name} has its own task in {name}"
                    for name in assigned(function, {"current_task"}) - deleted(function)
                ]
    return found


def raised_again(modules: dict[str, ast.Module]) -> list[str]:
    """The places where an error is raised from a variable that still refers to it."""
    found = []
    for path, tree in modules.items():
        for function in functions(tree):
            caught = {n.name for n in own_nodes(function) if isinstance(n, ast.ExceptHandler) and n.name}
            for node in own_nodes(function):
                if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Name | ast.Attribute):
                    continue
                name = ast.unparse(node.exc)
                is_class = name.rpartition(".")[2].lstrip("_")[0].isupper()
                if not is_class and name not in deleted(function) | emptied(function) | caught:
                    found.append(f"{path}:{node.lineno} {function.name} raises {name}")
    return found


def test_no_frame_refers_to_the_task_or_the_future_whose_error_passes_it() -> None:
    assert remembered(MODULES) == []


def test_no_frame_refers_to_the_error_that_it_raises() -> None:
    assert raised_again(MODULES) == []


@pytest.mark.parametrize(
    "lines",
    [
        "    task = create_task(work())\n    return await task",
        "    future = loop.run_in_executor(None, work)\n    return await asyncio.shield(future)",
        "    task = create_task(work())\n    await asyncio.wait((task,))\n    return task.result()",
        "    task = asyncio.current_task()\n    await work()",
        "    future = loop.create_future()\n    other.set_exception(error)\n    await future",
    ],
)
def test_a_frame_that_does_is_found(lines: str) -> None:
    head = "async def run():\n"
    assert len(remembered({"a.py": ast.parse(head + lines)})) == 1
    *first, last = lines.splitlines()
    name = lines.split(maxsplit=1)[0]
    mended = "\n".join([*first, "    try:", f"    {last}", "    finally:", f"        del {name}"])
    assert remembered({"a.py": ast.parse(head + mended)}) == []


def test_an_error_that_is_raised_from_a_variable_is_found() -> None:
    head = "def run(self):\n    error = ValueError()\n"
    assert len(raised_again({"a.py": ast.parse(head + "    raise error")})) == 1
    assert len(raised_again({"a.py": ast.parse(head + "    raise self._error")})) == 1
    assert raised_again({"a.py": ast.parse(head + "    raise error.copy()")}) == []
