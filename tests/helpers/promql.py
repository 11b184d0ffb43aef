"""Which series a PromQL expression reads, and which of them taskgate could never export."""

import re
from collections.abc import Collection, Iterator
from typing import Any

import promql_parser
from promql_parser import AggregateExpr, MatchOp, VectorSelector

from taskgate.telemetry.metrics.catalogue import FAMILIES, Family, FamilyKind

FOREIGN = ("up", "ALERTS", "process_", "python_", "scrape_")
"""What is there of every target, or of every Python program: whole names, or beginnings that end in `_`."""

ADDED = {"job", "instance"}
"""The labels that Prometheus adds."""

_FAMILIES = {family.name: family for family in FAMILIES}
_PARTS = ("_bucket", "_sum", "_count")


def nodes(expression: str) -> Iterator[Any]:
    """Every node of the expression's tree. Raises ValueError where it is no PromQL."""
    yield from _below(promql_parser.parse(expression))


def selectors(expression: str) -> Iterator[VectorSelector]:
    """Every selector in it."""
    return (node for node in nodes(expression) if isinstance(node, VectorSelector))


def strangers(expression: str, recorded: Collection[str] = ()) -> list[str]:
    """What the expression names that neither the catalogue nor `recorded` has: families, labels and their values."""
    found = [text for selector in selectors(expression) for text in _strange_in(selector, recorded)]
    labels = {"le", *ADDED, *_made_labels(expression)}
    for selector in selectors(expression):
        family = family_of(selector.name or "")
        labels |= {label.name for label in family.labels} if family is not None else set()
    grouped = {label for node in nodes(expression) if isinstance(node, AggregateExpr) for label in _grouping(node)}
    return found + sorted(f"by ({label})" for label in grouped - labels)


def family_of(name: str) -> Family | None:
    """The family that a series of that name belongs to."""
    for part in _PARTS:
        family = _FAMILIES.get(name.removesuffix(part))
        if name.endswith(part) and family is not None and family.kind is FamilyKind.HISTOGRAM:
            return family
    family = _FAMILIES.get(name)
    return None if family is None or family.kind is FamilyKind.HISTOGRAM else family


def _strange_in(selector: VectorSelector, recorded: Collection[str]) -> Iterator[str]:
    name = selector.name or ""
    family = family_of(name)
    if family is None:
        if name not in recorded and not any(
            name == each or (each[-1] == "_" and name.startswith(each)) for each in FOREIGN
        ):
            yield name
        return
    known = {label.name: label.values for label in family.labels}
    for matcher in selector.matchers.matchers:
        if matcher.name in ADDED or (matcher.name == "le" and family.kind is FamilyKind.HISTOGRAM):
            continue
        values = known.get(matcher.name, {})
        if matcher.name not in known:
            yield f"{name}{{{matcher.name}}}"
        elif values is not None:
            texts = {*values.values(), "", "_OTHER"}
            yield from (
                f"{name}{{{matcher.name}={each!r}}}" for each in _alternatives(matcher) if not _is_met(each, texts)
            )


def _alternatives(matcher: Any) -> list[str]:
    """The values that a matcher names; the patterns, where it has some."""
    if matcher.op in (MatchOp.Re, MatchOp.NotRe):
        return str(matcher.value).split("|")
    return [re.escape(matcher.value)]


def _is_met(pattern: str, texts: Collection[str]) -> bool:
    return any(re.fullmatch(pattern, text) for text in texts)


def _made_labels(expression: str) -> list[str]:
    """The labels that count_values makes."""
    return [
        node.param.val for node in nodes(expression) if isinstance(node, AggregateExpr) and hasattr(node.param, "val")
    ]


def _grouping(node: AggregateExpr) -> list[str]:
    return [] if node.modifier is None else list(node.modifier.labels)


def _below(node: Any) -> Iterator[Any]:
    yield node
    for name in ("lhs", "rhs", "expr", "vector_selector"):
        if getattr(node, name, None) is not None:
            yield from _below(getattr(node, name))
    for argument in getattr(node, "args", ()):
        yield from _below(argument)
