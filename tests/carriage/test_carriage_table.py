"""What hosts and servers see of each other through taskgate is what the table says, and the page says the table."""

import re
from pathlib import Path

import pytest

from requirements import covers

from . import runs, table
from .effects import PAIRINGS, POLICIES, Row, surprises
from .rows import ROWS
from .runs import CASES, Case

_explained: dict[Case, set[tuple[Row, str, str]]] = {}
"""The rows that said what becomes of something, by the runs in which they did."""


def _where(case: Case) -> tuple[str, str, str]:
    assert case.policy is not None
    return f"{case.host[0]}{case.server[0]}".upper(), case.policy, case.transport


async def _surprises(case: Case, folder: Path) -> list[str]:
    """What a run shows that the table says nothing or something else of."""
    found = list(surprises(ROWS, _where(case), *await runs.both(case, folder)))
    pairing, policy, _ = _where(case)
    _explained[case] = {(row, pairing, policy) for row, surprise in found if row is not None and surprise is None}
    return [str(surprise) for _, surprise in found if surprise is not None]


@covers("X-EXT-56")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_what_crosses_is_what_the_table_says(case: Case, tmp_path: Path) -> None:
    assert await _surprises(case, tmp_path) == []


@pytest.mark.timeout(300)
async def test_every_cell_of_the_table_is_true_of_something(tmp_path: Path) -> None:
    for case in CASES:
        if case not in _explained:
            await _surprises(case, tmp_path)
    explained = set().union(*_explained.values())
    cells = {(row, pairing, policy) for row in ROWS for pairing in row.cells for policy in row.policies}
    assert sorted(f"{row.about}: {pairing} {policy}" for row, pairing, policy in cells - explained) == []


def test_the_page_is_what_the_table_says() -> None:
    assert table.PAGE.read_text(encoding="utf-8") == table.page()


def test_every_reason_is_explained_and_none_besides() -> None:
    assert {row.why for row in ROWS if row.why} == set(table.REASONS)


def test_what_does_not_cross_as_it_is_has_a_reason() -> None:
    assert [row.about for row in ROWS if not row.why and set(row.cells.values()) != {"as is"}] == []


def test_lines_of_the_page_contradict_no_row() -> None:
    said: dict[tuple[object, ...], set[str]] = {}
    for title, row in table.placed():
        for pairing, effect in row.cells.items():
            for policy in row.policies:
                said.setdefault((title, row.about, row.transports, pairing, policy), set()).add(effect)
    assert {place: effects for place, effects in said.items() if len(effects) > 1} == {}


# --- the comparison itself

_LIKE = Row(about="likes", patterns=("host.{a,b}.*",), cells={"LL": "as is", "LM": "not"}, why="own")
_REST = Row(about="the rest", patterns=("host.*",), cells=dict.fromkeys(PAIRINGS, "rewritten"), policies=POLICIES[:1])


def _told(pairing: str, policy: str, direct: dict[str, object], through: dict[str, object]) -> list[str]:
    found = surprises((_LIKE, _REST), (pairing, policy, "http"), direct, through)
    return [re.sub(r":.*", "", str(surprise)) for _, surprise in found if surprise is not None]


def test_an_observation_that_does_what_its_row_says_is_no_surprise() -> None:
    assert _told("LL", "default", {"host.a.x": 1, "host.c": 1}, {"host.a.x": 1, "host.c": 2}) == []
    assert _told("LM", "default", {"host.b.x": 1}, {}) == []


def test_an_observation_without_a_row_is_a_surprise() -> None:
    assert _told("LL", "deny", {"host.c": 1}, {"host.c": 1}) == ["host.c"]
    assert _told("ML", "default", {"server.a.x": 1}, {"server.a.x": 1}) == ["server.a.x"]


@pytest.mark.parametrize(
    ("direct", "through"),
    [({"host.a.x": 1}, {}), ({}, {"host.a.x": 1}), ({"host.a.x": 1}, {"host.a.x": 2}), ({"host.c": 1}, {"host.c": 1})],
    ids=["dropped", "added", "changed", "not changed"],
)
def test_an_observation_that_does_something_else_is_a_surprise(
    direct: dict[str, object], through: dict[str, object]
) -> None:
    assert _told("LL", "default", direct, through) == list(direct or through)


def test_the_first_row_that_is_about_an_observation_counts() -> None:
    assert _told("MM", "default", {"host.a.x": 1}, {"host.a.x": 2}) == []
    assert _told("LL", "default", {"host.a.x": 1}, {"host.a.x": 2}) == ["host.a.x"]


@pytest.mark.parametrize(
    ("effect", "code", "more"),
    [("refused", -32601, {}), ("failed", -32603, {"host.a.error.data.reason": "malformed"})],
    ids=["refused", "failed"],
)
def test_an_answer_of_taskgate_has_its_code_and_nothing_of_the_server(
    effect: str, code: int, more: dict[str, object]
) -> None:
    rows = (Row(about="a", patterns=("*",), cells={"LL": effect}),)

    def told(through: dict[str, object]) -> list[str]:
        direct = {"host.a.result.x": 1, "host.a.status": 200, "server.a.method": "a"}
        found = surprises(rows, ("LL", "default", "http"), direct, through)
        return [surprise.name for _, surprise in found if surprise is not None]

    answer = {"host.a.error.code": code, "host.a.error.message": "m", "host.a.status": 404, **more}
    assert told(answer) == []
    assert told(answer | {"host.a.error.code": -32000}) == ["host.a.error.code"]
    assert told(answer | {"host.a.result.x": 1}) == ["host.a.result.x"]
    assert told(answer | {"server.a.method": "a"}) == ["server.a.method"]


def test_a_row_for_one_transport_says_nothing_of_others() -> None:
    rows = (Row(about="a", patterns=("*",), cells={"LL": "as is"}, transports=("stdio",)),)
    for transport, expected in (("stdio", []), ("http", ["host.a"])):
        found = surprises(rows, ("LL", "default", transport), {"host.a": 1}, {"host.a": 1})
        assert [surprise.name for _, surprise in found if surprise is not None] == expected
