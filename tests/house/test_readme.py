"""What the README shows is there: commands, options, files, keys, limits."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from taskgate.cli import main
from taskgate.config.models import GatewayConfig

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md"), ROOT / "grafana" / "README.md"]


def shown_commands() -> list[str]:
    """The indented lines of the README, comments cut."""
    lines = [line[4:].split("#")[0].strip() for line in README.splitlines() if line.startswith("    ")]
    return [line for line in lines if line]


@pytest.mark.parametrize("command", [each for each in shown_commands() if each.startswith("make ")])
def test_a_make_target_that_is_shown_exists(command: str) -> None:
    target = command.split()[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", [each for each in shown_commands() if "taskgate " in each])
def test_a_command_that_is_shown_has_these_options_and_files(command: str) -> None:
    program, name, *rest = command.split()
    assert program == ".venv/bin/taskgate"
    shown = CliRunner().invoke(main, [name, "--help"])
    assert shown.exit_code == 0
    assert [word for word in rest if word.startswith("--") and word not in shown.output] == []
    assert [word for word in rest if word.endswith(".yaml") and not (ROOT / word).is_file()] == []


def test_every_command_that_is_shown_is_checked_here() -> None:
    assert [each for each in shown_commands() if not each.startswith(("make ", ".venv/bin/taskgate "))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_to_a_file_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_file_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|md|yaml|json)|tests/[\w/]+)`", page.read_text())
    places = (ROOT, ROOT / "proxy" / "taskgate")
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def test_every_limit_is_told_with_its_default() -> None:
    config = GatewayConfig.model_validate(
        {"version": 1, "auth": {"mode": "none"}, "upstreams": {"a": {"path": "/a", "url": "http://127.0.0.1/"}}}
    ).model_dump(mode="json")
    told = {
        "limits.concurrency.tasks_per_context": "10",
        "tasks.max_result": "16MiB",
        "store.sqlite.max_size": "4GiB",
        "server.max_body": "4MiB",
        "server.max_header": "16KiB",
        "server.max_json_depth": "64",
        "tasks.ttl.max": "1h",
        "tasks.ttl.min": "1m",
    }
    for key, default in told.items():
        value = config
        for part in key.split("."):
            value = value[part]
        assert str(value) == default, key
    for text in ("10 |", "16 MiB |", "4 GiB |", "4 MiB, 16 KiB, 64 levels", "1 h at most, 1 min at least"):
        assert text in README
