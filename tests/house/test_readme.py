"""What the README shows is there: commands, options, files, keys, limits."""

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from taskgate.auth.claims import MAX_TOKEN
from taskgate.auth.metadata import metadata_path
from taskgate.cli import main
from taskgate.config import load
from taskgate.config.model import GatewayConfig
from taskgate.wiring.authentication import resource_of

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "grafana").glob("*.md")]


FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shown_commands() -> list[str]:
    """The indented lines of the README outside of fences, comments cut."""
    lines = [line[4:].split("#")[0].strip() for line in FENCED.sub("", README).splitlines() if line.startswith("    ")]
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


def shown_configurations(folder: Path) -> list[GatewayConfig]:
    """The files that the README shows, in their order."""
    found: list[GatewayConfig] = []
    for kind, text in FENCED.findall(README):
        if kind == "yaml":
            file = folder / "shown.yaml"
            file.write_text(text)
            found.append(load(file, {}))
    return found


def test_a_configuration_that_is_shown_is_taken_and_says_what_the_text_around_it_says(tmp_path: Path) -> None:
    of_servers, config = shown_configurations(tmp_path)
    assert {each.transport for each in of_servers.upstreams.values()} == {"http", "sse", "stdio"}
    assert (config.auth.mode, list(config.auth.issuers)) == ("required", ["corp"])
    (path,) = [section.path for section in config.upstreams.values()]
    assert f"`aud` must be `{resource_of(config, 0, path)}`" in README
    assert f"names `{metadata_path(path)}`" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_to_a_file_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_file_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|md|yaml|json)|tests/[\w/]+)`", page.read_text())
    places = (ROOT, ROOT / "proxy" / "taskgate")
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def defaults(**auth: object) -> dict[str, Any]:
    """Every key of the least configuration with that `auth`, as it takes effect."""
    upstreams = {"a": {"path": "/a", "url": "http://127.0.0.1/"}}
    return GatewayConfig.model_validate({"version": 1, "auth": auth, "upstreams": upstreams}).model_dump(mode="json")


def at(config: dict[str, Any], key: str) -> str:
    """The value of a dotted key, as a file has it."""
    value: Any = config
    for part in key.split("."):
        value = value[part]
    return str(value)


def test_every_limit_is_told_with_its_default() -> None:
    config = defaults(mode="none")
    told = {
        "limits.concurrency.tasks_per_context": "10",
        "limits.concurrency.tasks_per_tenant": "100",
        "limits.concurrency.tasks_global": "1000",
        "limits.concurrency.kept_per_context": "256MiB",
        "limits.concurrency.kept_global": "2GiB",
        "limits.concurrency.sessions_per_context": "100",
        "limits.concurrency.calls_per_context": "8",
        "limits.concurrency.waits_per_context": "64",
        "limits.concurrency.waits_global": "2048",
        "server.max_streams_per_context": "16",
        "tasks.early_poll.reject_above": "10.0",
        "upstreams.a.concurrency": "32",
        "upstreams.a.queue.size": "256",
        "upstreams.a.queue.max_wait": "5m",
        "upstreams.a.processes": "8",
        "upstreams.a.pool.idle_timeout": "1m",
        "upstreams.a.timeouts.first_byte": "30s",
        "upstreams.a.circuit_breaker.failures": "5",
        "upstreams.a.circuit_breaker.window": "30s",
        "upstreams.a.circuit_breaker.open_for": "30s",
        "tasks.max_result": "16MiB",
        "tasks.input_required.max_wait": "30m",
        "tasks.input_required.max_outstanding": "8",
        "store.sqlite.max_size": "4GiB",
        "server.max_body": "4MiB",
        "server.max_header": "16KiB",
        "server.max_json_depth": "64",
        "server.max_json_members": "4096",
        "tasks.ttl.max": "1h",
        "tasks.ttl.min": "1m",
        "auth.lookup_failures.threshold": "20",
        "auth.lookup_failures.window": "1m",
        "auth.lookup_failures.penalty": "5m",
        "auth.token_cache.max_ttl": "1m",
    }
    assert {key: at(config, key) for key in told} == told
    texts = (
        "10, 100, 1,000 |",
        "256 MiB, 2 GiB, ",
        "100, 16 |",
        "10 times as often as suggested",
        "32; 256 more wait, 5 min at most",
        "At most `processes` (8) of a program",
        "| 8, then one that is idle ends,",
        "`pool.idle_timeout` (1 min)",
        "`timeouts.first_byte` (30 s)",
        "5 times in 30 s, or 3 checks in a row, then nothing is sent for 30 s",
        "16 MiB |",
        "30 min, 8 |",
        "4 GiB |",
        "4 MiB, 16 KiB, 64 levels",
        "20 a minute, then none for 5 min",
    )
    for text in texts:
        assert text in README
    assert "`auth.token_cache.max_ttl` (60 s)" in README


def test_every_rate_is_told_with_its_default() -> None:
    rates = {each["name"]: (each["rate"], each["burst"]) for each in defaults(mode="none")["limits"]["rate"]}
    assert rates == {
        "ip": ("1000/s", 2000),
        "auth_failures": ("1/s", 20),
        "calls": ("5/s", 20),
        "polls": ("20/s", 60),
        "rest": ("20/s", 60),
    }
    for text in (
        "1,000 a second, 2,000 at once | `limits.rate`: `ip` |",
        "1 a second, 20 at once, then no request of it | `auth_failures` |",
        "5, 20, 20 a second; 20, 60, 60 at once | `calls`, `polls`, `rest` |",
    ):
        assert text in README


def test_what_depends_on_whether_callers_are_known_is_told_for_both() -> None:
    known = defaults(mode="required", issuers={"corp": {"issuer": "https://idp.example.com/"}})
    assert (at(known, "tasks.ttl.max"), at(known, "auth.issuers.corp.jwks.refresh")) == ("1d", "5m")
    assert "without authentication 1 h at most, 1 min at least; with it 24 h at most, up to 7 d |" in README
    assert "(`jwks.refresh`, 5 min)" in README
    assert MAX_TOKEN == 8 * 1024
    assert "| bearer token | 8 KiB | |" in README
