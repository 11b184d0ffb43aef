"""JSON as people and machines write it: strategies that make texts rather than values, and readings to judge by.

The texts hold what a serialiser of ours would never write: odd white space, escapes of any letter, lone surrogates,
numbers of any size, repeated keys, deep nests.
"""

import json
from typing import Any

from hypothesis import strategies as st


class Written(list[tuple[str, Any]]):
    """An object as the pairs it is written in."""


def written(text: str) -> Any:
    """The tree of a text by the standard parser, every object as Written: repeated keys and their order show."""
    return json.loads(text, object_pairs_hook=Written, parse_constant=_refuse)


def depth_of(tree: Any) -> int:
    """How deep objects and arrays nest, counted one by one."""
    if isinstance(tree, Written):
        return 1 + max((depth_of(value) for _, value in tree), default=0)
    if isinstance(tree, list):
        return 1 + max((depth_of(value) for value in tree), default=0)
    return 0


def _refuse(name: str) -> None:
    raise ValueError(name)


spaces = st.sampled_from(["", "", "", " ", "\n", "\t", "\r\n", "  \n\t "])

_letters = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\')
_escapes = st.sampled_from([r"\"", r"\\", r"\/", r"\b", r"\f", r"\n", r"\r", r"\t", r"\u0000", r"\u0022", r"\u00e9"])
_surrogates = st.sampled_from([r"\ud83d\ude00", r"\ud800", r"\udfff", r"\ude00\ud83d"])
_bait = st.sampled_from(["{", "}", "[", "]", ",", ":", '\\"}', "\u2028", "\u0085", "\x7f", "é", "漢", "😀"])


def strings(*, surrogates: bool = True) -> st.SearchStrategy[str]:
    """String literals; `surrogates` False leaves out escaped surrogates, paired ones too."""
    pieces = [_letters, _letters, _escapes, _bait]
    if surrogates:
        pieces.append(_surrogates)
    return st.lists(st.one_of(pieces), max_size=8).map(lambda parts: '"' + "".join(parts) + '"')


_digits = st.integers(min_value=1, max_value=400).map(lambda count: "7" * count)
numbers = st.one_of(
    st.integers().map(str),
    _digits,
    st.sampled_from(["0", "-0", "-0.0", "1.50", "1E+2", "1e-7", "1e999", "-1e999", "0.1e1", "9007199254740993"]),
)
scalars = st.one_of(strings(), numbers, st.sampled_from(["true", "false", "null"]))


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[str], *, repeats: bool = True, max_size: int = 4) -> str:
    """Object texts around drawn values; `repeats` False draws every key once, as it reads and not as it is spelt."""
    keys = st.one_of(strings(), st.sampled_from(['"a"', '"b"', '"id"', '"_meta"', r'"\u0061"', '""']))
    unique = None if repeats else json.loads
    pairs = draw(
        st.lists(st.tuples(keys, values), max_size=max_size, unique_by=unique and (lambda pair: unique(pair[0])))
    )
    return object_of(draw, pairs)


def object_of(draw: st.DrawFn, pairs: list[tuple[str, str]]) -> str:
    """The text of an object with these members, white space drawn."""
    space = lambda: draw(spaces)  # noqa: E731  (drawn anew at every place)
    parts = [f"{space()}{key}{space()}:{space()}{value}{space()}" for key, value in pairs]
    return "{" + (",".join(parts) or space()) + "}"


@st.composite
def arrays(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    """Array texts around drawn values."""
    parts = [f"{draw(spaces)}{value}{draw(spaces)}" for value in draw(st.lists(values, max_size=4))]
    return "[" + (",".join(parts) or draw(spaces)) + "]"


_nests = st.integers(min_value=1, max_value=60).map(lambda depth: '{"n":[' * depth + "0" + "]}" * depth)
texts = st.recursive(scalars | _nests, lambda inner: objects(inner) | arrays(inner), max_leaves=12)
"""Any JSON value."""


@st.composite
def messages(draw: st.DrawFn) -> str:
    """Requests, notifications and responses whose walked objects repeat no key; anything goes below those."""
    kind = draw(st.sampled_from(["request", "notification", "result", "error"]))
    identity = draw(st.one_of(strings(surrogates=False), st.integers(-(2**63) + 1, 2**63 - 1).map(str)))
    pairs = [('"jsonrpc"', '"2.0"')]
    if kind in ("request", "notification"):
        pairs.append(('"method"', draw(strings(surrogates=False))))
        if draw(st.booleans()):
            pairs.append(('"params"', draw(_opened(("_meta", "task")) | texts.filter(_is_no_object))))
    if kind == "result":
        pairs.append(('"result"', draw(_opened(("_meta",)) | texts.filter(_is_no_object))))
    if kind == "error":
        pairs.append(('"error"', object_of(draw, [('"code"', "-32000"), ('"message"', draw(strings()))])))
    if kind != "notification":
        pairs.append(('"id"', identity))
    if draw(st.booleans()):
        pairs.append(('"x"', draw(texts)))
    return draw(spaces) + object_of(draw, draw(st.permutations(pairs))) + draw(spaces)


@st.composite
def _opened(draw: st.DrawFn, names: tuple[str, ...]) -> str:
    """An object that is walked, and in it objects that are walked too."""
    pairs = [(f'"{name}"', draw(objects(texts, repeats=False) | scalars)) for name in names if draw(st.booleans())]
    keys = st.sampled_from(['"name"', '"arguments"', '"cursor"', r'"\ud800"', '"k\\"ey"', '"é"'])
    pairs.extend((key, draw(texts)) for key in draw(st.lists(keys, unique=True, max_size=3)))
    return object_of(draw, draw(st.permutations(pairs)))


def _is_no_object(text: str) -> bool:
    return not text.startswith("{")
