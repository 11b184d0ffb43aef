"""The pages that lead a reader: what they name is there, and they stay short."""

import re
import tomllib
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "proxy" / "taskgate"
ARCHITECTURE = CHECKOUT / "docs" / "architecture.md"
GLOSSARY = CHECKOUT / "docs" / "glossary.md"
CONTRIBUTING = CHECKOUT / "CONTRIBUTING.md"
PATH = re.compile(r"`([\w.*-]+(?:/[\w.*-]+)+)`")
METHODS = {"server", "subscriptions", "tasks", "tools"}
"""First halves of the names of MCP methods."""
LINES, COLUMNS, WORDS = 115, 100, 80


def missing_paths(text: str) -> list[str]:
    """The paths in backticks that are neither in the package nor in the checkout. `*` stands for some."""
    return [path for path in PATH.findall(text) if path.partition("/")[0] not in METHODS and not is_there(path)]


def is_there(path: str) -> bool:
    return any(any(place.glob(f"{path}{end}")) for place in (PACKAGE, CHECKOUT) for end in ("", ".py"))


def floors(text: str) -> list[str]:
    """The folders and modules of the floor plan, from the top."""
    _, plan, _ = text.split("```\n", 2)
    return [name for line in plan.splitlines() for name in re.split(r",? +", line.partition("   ")[0].strip())]


def words(text: str) -> list[str]:
    """The words of the glossary, in its order."""
    return re.findall(r"^\| ([^|]+) \| [^|]+ \|$", text, flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("page", [ARCHITECTURE, CONTRIBUTING], ids=lambda page: page.stem)
def test_every_path_that_a_map_names_is_there(page: Path) -> None:
    assert missing_paths(page.read_text()) == []


def test_a_path_that_is_not_there_is_seen() -> None:
    text = "`gateway/pipeline` and `gateway/pipelines`, `docs/audit.md`, `telemetry/*/settings.py`, `stores/*.lua`"
    assert missing_paths(text) == ["gateway/pipelines", "stores/*.lua"]


def test_the_floor_plan_has_every_layer_of_the_contract_in_its_order() -> None:
    contracts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    planned = [name.strip() for layer in layers for name in layer.split("|")]
    assert set(floors(ARCHITECTURE.read_text())) == set(planned) - {"__main__"}


@pytest.mark.parametrize("page", [ARCHITECTURE, CONTRIBUTING, GLOSSARY], ids=lambda page: page.stem)
def test_a_page_that_leads_is_short_and_narrow(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert len(lines) <= LINES
    assert [line for line in lines if len(line) > COLUMNS and not line.startswith("|")] == []


def test_the_glossary_is_sorted_and_has_few_words() -> None:
    found = words(GLOSSARY.read_text())
    assert found == sorted(set(found), key=str.casefold)
    assert 30 < len(found) <= WORDS
