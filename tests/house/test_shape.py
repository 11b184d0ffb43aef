"""The report of `make check` counts what it says it counts."""

from pathlib import Path

import pytest

from house.shape import WIDE, Shape, report, shape_of


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A small package of which everything is known."""
    package = tmp_path / "house"
    (package / "wide").mkdir(parents=True)
    (package / "one.py").write_text(
        "from house.two import A\nfrom house import wide\nimport os\n\n\nclass B:\n    pass\n"
    )
    (package / "two.py").write_text("class A:\n    def long(self):\n        x = 1\n        return x\n")
    (package / "__init__.py").write_text("")
    for number in range(WIDE + 1):
        (package / "wide" / f"m{number}.py").write_text("class A:\n    pass\n")
    return package


def test_what_is_largest_comes_first(package: Path) -> None:
    shape = shape_of(package)
    assert shape.modules[0] == (7, "one.py")
    assert shape.functions == [(3, "two.py: long")]
    assert shape.imports[0] == (2, "one.py")


def test_a_folder_is_wide_with_one_file_too_many(package: Path) -> None:
    assert shape_of(package).folders == [(WIDE + 1, "wide")]
    (package / "wide" / "m0.py").unlink()
    assert shape_of(package).folders == []


def test_a_class_name_counts_once_for_each_module(package: Path) -> None:
    assert shape_of(package).classes == [(WIDE + 2, "A")]


def test_everything_counted_is_in_the_report(package: Path) -> None:
    text = report(package)
    assert text.startswith(f"{WIDE + 4} modules, {7 + 4 + 2 * (WIDE + 1)} lines\n")
    assert all(row[1] in text for rows in Shape(*shape_of(package)) for row in rows[:1])
