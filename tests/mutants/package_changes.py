"""What can be changed in a function of the package, one place at a time: `changes`, and `codes` for what it becomes.

A condition is negated, a comparison turned, `and` put for `or`. A statement that calls or sets something is left out, a
number or a truth changed, a result forgotten, a shield taken away. Texts are changed where `with_texts` asks for it.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Final

_TURNED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_BLOCKS: Final = ast.stmt | ast.ExceptHandler | ast.match_case
_ONLY_TURNED: Final = ast.Lt | ast.LtE | ast.Gt | ast.GtE
"""A comparison that is not the same turned as negated."""
Function = tuple[str, int]
"""The qualified name of a function, and its first line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One place of a module, and what is done to it."""

    what: str
    place: int
    """The place of the changed node in `ast.walk` of the module."""
    lines: range
    """Where it is in the source. A test that runs none of them cannot tell."""
    name: str
    """What is done, and to what; a number where the module has the same again further down."""


def changes(source: str, *, with_texts: bool = False) -> list[Change]:
    """Every change of a module's functions, by line."""
    tree = ast.parse(source)
    inside = {id(node): lines for node, lines in _inside_functions(tree)}
    conditions = {id(each) for node in ast.walk(tree) for each in _conditions(node)}
    found, seen = [], Counter[str]()
    for place, node in enumerate(ast.walk(tree)):
        for what in _kinds(node, id(node) in conditions, with_texts) if id(node) in inside else ():
            name = f"{what}: {' '.join(ast.unparse(node).split())[:80]}"
            seen[name] += 1
            number = f" ({seen[name]})" if seen[name] > 1 else ""
            found.append(Change(what=what, place=place, lines=inside[id(node)], name=f"{name}{number}"))
    return found


def codes(source: str, change: Change, file: Path) -> dict[Function, CodeType]:
    """The code of each function that the change makes another; nothing where no function could be put in its place."""
    tree = ast.parse(source)
    node = [*ast.walk(tree)][change.place]
    _Replacement(node, _changed(node, change.what)).visit(tree)
    try:
        after = compiled(ast.fix_missing_locations(tree), file)
    except SyntaxError:
        return {}
    found = {}
    for one, other in functions(compiled(source, file), after):
        if one != other:
            if one.co_freevars != other.co_freevars or one.co_flags != other.co_flags:
                return {}
            found[one.co_qualname, one.co_firstlineno] = other
    return found


def compiled(source: str | ast.Module, file: Path) -> CodeType:
    """The code of a module, as the interpreter has it when it is imported."""
    return compile(source, file, "exec", dont_inherit=True, optimize=0)


def functions(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The code of each function and class, before and after, outer ones first."""
    inner_before, inner_after = (
        [each for each in code.co_consts if isinstance(each, CodeType)] for code in (before, after)
    )
    if len(inner_before) != len(inner_after):
        # A comprehension or a lambda went with the statement that it was in; its function holds all of it.
        by_name = {(each.co_qualname, each.co_firstlineno): each for each in inner_after}
        inner = [(each, by_name.get((each.co_qualname, each.co_firstlineno))) for each in inner_before]
        pairs = [(one, other) for one, other in inner if other is not None]
    else:
        pairs = [*zip(inner_before, inner_after, strict=True)]
    for one, other in pairs:
        yield one, other
        yield from functions(one, other)


class _Replacement(ast.NodeTransformer):
    def __init__(self, node: ast.AST, by: ast.AST) -> None:
        self._node, self._by = node, by

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._node:
            return self._by
        return super().generic_visit(node)


def _inside_functions(tree: ast.Module) -> Iterator[tuple[ast.AST, range]]:
    """Each node in the body of a function, with the lines of the statement or expression that runs it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_stub(node):
            for statement in node.body[1 if ast.get_docstring(node) is not None else 0 :]:
                yield from _lines(statement)


def _is_stub(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    last = function.body[-1]
    return isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant)


def _lines(node: ast.AST, lines: range | None = None) -> Iterator[tuple[ast.AST, range]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return  # what it runs is its own
    if isinstance(node, _BLOCKS):
        holds_blocks = any(isinstance(each, _BLOCKS) for each in ast.iter_child_nodes(node))
        lines = None if holds_blocks else _lines_of(node)
    elif lines is None and isinstance(node, ast.expr):
        lines = _lines_of(node)
    if lines is not None:
        yield node, lines
    for name, child in ast.iter_fields(node):
        for each in child if isinstance(child, list) else [child]:
            if isinstance(each, ast.AST) and name != "annotation":
                yield from _lines(each, lines)


def _lines_of(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _conditions(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            return [test]
        case ast.comprehension(ifs=tests):
            return tests
        case ast.match_case(guard=ast.expr() as test):
            return [test]
        case _:
            return []


def _kinds(node: ast.AST, is_condition: bool, with_texts: bool) -> Iterator[str]:
    if is_condition:
        yield "negated"
    match node:
        case ast.Compare(ops=[operator]) if not is_condition or isinstance(operator, _ONLY_TURNED):
            yield "turned"
        case ast.BoolOp():
            yield "and for or"
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete():
            yield "left out"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AnnAssign(target=ast.Attribute()):
            yield "left out"
        case ast.Constant(value=bool()) if not is_condition:
            yield "the other"
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            yield from ("one more", "one less")
        case ast.Constant(value=str() | bytes()) if with_texts:
            yield "longer"
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "nothing returned"
        case ast.Await(value=ast.Call(func=ast.Attribute(value=ast.Name("asyncio"), attr="shield"), args=[_])):
            yield "not shielded"


def _changed(node: ast.AST, what: str) -> ast.AST:
    match what, node:
        case "negated", ast.expr():
            changed: ast.AST = ast.UnaryOp(ast.Not(), node)
        case "turned", ast.Compare(left, [operator], right):
            changed = ast.Compare(left, [_TURNED[type(operator)]()], right)
        case "and for or", ast.BoolOp(operator, values):
            changed = ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case "left out", ast.stmt():
            changed = ast.Pass()
        case "the other", ast.Constant(value):
            changed = ast.Constant(not value)
        case "one more", ast.Constant(int() as value):
            changed = ast.Constant(value + 1)
        case "one less", ast.Constant(int() as value):
            changed = ast.Constant(value - 1)
        case "longer", ast.Constant(str() as value):
            changed = ast.Constant(f"{value}!")
        case "longer", ast.Constant(bytes() as value):
            changed = ast.Constant(value + b"!")
        case "nothing returned", ast.Return():
            changed = ast.Return(ast.Constant(None))
        case "not shielded", ast.Await(ast.Call(args=[shielded])):
            changed = ast.Await(shielded)
        case _:
            raise ValueError(f"no such change of {node}: {what}")
    return ast.copy_location(changed, node)
