"""What README and the pages of `docs/` show is there: commands, options, files, keys, configurations, links, limits."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from ruamel.yaml import YAML

from house.documents import (
    CHECKOUT,
    DECISIONS,
    DOCS,
    EXEMPT,
    LONGEST,
    Fence,
    exempt,
    fences,
    judged,
    long_sentences,
    named_commands,
    pages,
    retired_words,
    shown_commands,
    shown_lines,
    without_fences,
)
from taskgate.auth.claims import MAX_TOKEN
from taskgate.auth.metadata import metadata_path
from taskgate.cli import main
from taskgate.config import load
from taskgate.config.model import GatewayConfig
from taskgate.wiring.authentication import resource_of

README = CHECKOUT / "README.md"
IDENTITY = DOCS / "how-to" / "identity-providers.md"
LIMITS = (DOCS / "concepts" / "limits.md").read_text(encoding="utf-8")
SERVERS = (DOCS / "start" / "servers.md").read_text(encoding="utf-8")
REST = {
    "version": 1,
    "auth": {"mode": "none"},
    "upstreams": {"reports": {"path": "/reports/mcp", "url": "http://127.0.0.1:3000/mcp"}},
}
"""What a block needs that shows a section alone."""
ALONE = {"io.modelcontextprotocol/events"}
"""Blocks that begin so show an entry of `upstreams.*.extensions`."""
PLACEHOLDERS = {"NUMBER": "1"}


def named(page: Path) -> str:
    return str(page.relative_to(CHECKOUT))


def every(language: str) -> list[Fence]:
    """The blocks of all pages in that language."""
    return [each for page in pages() for each in fences(page) if each.language == language]


# --- the README ------------------------------------------------------------------------------------------------------


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 200


def test_a_heading_of_the_readme_has_a_page_that_says_more() -> None:
    sections = re.split(r"^## ", README.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert [each.split("\n")[0] for each in sections if "(docs/" not in each] == []


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", pages(), ids=named)
def test_a_make_target_that_is_shown_exists(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (CHECKOUT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = [line.split()[1] for line in shown_lines(page) if re.match(r"make [a-z]", line)]
    shown += re.findall(r"`make ([a-z][a-z-]*)", without_fences(page.read_text(encoding="utf-8")))
    assert [each for each in shown if each not in targets] == []


def made_for(words: list[str], folder: Path) -> list[str]:
    """The words, with the files that they name: those of the checkout, or empty ones in a folder."""
    made = []
    for word in words:
        name = PLACEHOLDERS.get(word, word)
        if re.fullmatch(r"FILE|@?[\w*-]+\.(yaml|json|jsonl\*?|key|token|log)", name):
            (folder / name.lstrip("@")).touch()
        made.append(str(CHECKOUT / name) if name.startswith("config/") else name)
    return made


@pytest.mark.parametrize("page", [page for page in pages() if shown_commands(page)], ids=named)
def test_a_command_that_is_shown_is_taken_by_the_parser(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in shown_commands(page):
        parse(made_for(words, tmp_path))


def parse(words: list[str]) -> None:
    """Raises what click raises of a command line that is wrong. Nothing is carried out."""
    command: click.Command = main
    context = click.Context(main, info_name="taskgate")
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None, words
        command = found
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name, parent=context)
        else:
            command.make_context(name, [*words], parent=context)


@pytest.mark.parametrize("page", [page for page in pages() if named_commands(page)], ids=named)
def test_a_command_that_is_named_exists_with_its_options(page: Path) -> None:
    for words in named_commands(page):
        command: click.Command = main
        rest = words
        while rest and isinstance(command, click.Group) and not rest[0].startswith("-"):
            found = command.get_command(click.Context(command), rest[0].split("|")[0])
            assert found is not None, words
            command, rest = found, rest[1:]
        options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
        assert [word for word in rest if re.match(r"--\w", word) and word not in options] == []


# --- configurations and JSON -----------------------------------------------------------------------------------------


def loaded(block: Fence, folder: Path) -> GatewayConfig:
    """The configuration of a block; one that shows a section alone gets the rest."""
    shown = YAML(typ="safe").load(block.text)
    if ALONE & set(shown):
        shown = {"upstreams": {"reports": {**REST["upstreams"]["reports"], "extensions": shown}}}  # type: ignore[index]
    file = folder / "shown.yaml"
    if "version" in shown:
        file.write_text(block.text, encoding="utf-8")
    else:
        file.write_text(json.dumps(REST | shown), encoding="utf-8")
    return load(file, {})


@pytest.mark.parametrize("block", every("yaml"), ids=lambda block: named(block.page))
def test_a_configuration_that_is_shown_is_taken(block: Fence, tmp_path: Path) -> None:
    assert loaded(block, tmp_path).version == 1


@pytest.mark.parametrize("block", every("json"), ids=lambda block: named(block.page))
def test_json_that_is_shown_is_json(block: Fence) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("page", pages(), ids=named)
def test_a_body_of_a_request_that_is_shown_is_json(page: Path) -> None:
    bodies = [
        each
        for block in fences(page)
        if block.language == "sh"
        for each in re.findall(r"-d '(\{.*?)'", block.text, re.S)
    ]
    for body in bodies:
        json.loads(body)


def test_the_page_of_servers_shows_one_of_each_kind(tmp_path: Path) -> None:
    [block] = [each for each in fences(DOCS / "start" / "servers.md") if each.language == "yaml"]
    assert {each.transport for each in loaded(block, tmp_path).upstreams.values()} == {"http", "sse", "stdio"}


def test_the_page_of_identity_providers_says_what_its_first_configuration_means(tmp_path: Path) -> None:
    config = loaded(next(each for each in fences(IDENTITY) if each.language == "yaml"), tmp_path)
    assert (config.auth.mode, list(config.auth.issuers)) == ("required", ["corp"])
    (path,) = [section.path for section in config.upstreams.values()]
    text = IDENTITY.read_text(encoding="utf-8")
    assert f"`aud` must be `{resource_of(config, 0, path)}`" in text
    assert f"names `{metadata_path(path)}`" in text


def test_the_configuration_of_the_page_of_claude_code_hands_its_calls_off_when_the_page_says(tmp_path: Path) -> None:
    """Its calls ask for progress, which by itself lets it wait for a day."""
    page = DOCS / "how-to" / "claude-code.md"
    config = loaded(next(each for each in fences(page) if each.language == "yaml"), tmp_path)
    (rule,) = config.tasks.upgrade
    assert rule.handoff is not None
    progress = 2 * config.server.sse_keepalive
    grace = config.tasks.handoff.to_rules().grace(rule.handoff.to_terms(joins=True), "claude-code", progress)
    assert f"that takes longer than {grace.total_seconds():g} s is answered with a handle" in page.read_text("utf-8")


# --- links and files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", pages(), ids=named)
def test_a_link_to_a_file_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", pages(), ids=named)
def test_a_file_that_is_named_exists(page: Path) -> None:
    found = re.findall(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|md|yaml|json)|tests/[\w/]+)`", page.read_text(encoding="utf-8"))
    places = (CHECKOUT, CHECKOUT / "proxy" / "taskgate")
    inside = {".vscode/mcp.json"}  # of a workspace
    assert [name for name in found if name not in inside and not any((each / name).exists() for each in places)] == []


# --- sentences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", judged(), ids=named)
def test_no_sentence_is_long(page: Path) -> None:
    assert [str(each) for each in long_sentences(page)] == []


@pytest.mark.parametrize("page", judged(), ids=named)
def test_no_page_has_a_word_that_the_lint_of_the_code_retires(page: Path) -> None:
    assert retired_words(page) == []


def test_a_page_without_long_sentences_is_not_exempt() -> None:
    assert [page for page in exempt() if not long_sentences(page)] == [], EXEMPT


def test_the_readme_decisions_and_runbooks_are_judged() -> None:
    assert {README, *DECISIONS.glob("0*.md"), CHECKOUT / "grafana" / "runbooks.md"} <= set(judged())


def test_a_long_sentence_is_found_in_a_paragraph_an_item_and_a_cell(tmp_path: Path) -> None:
    words = " ".join(["word"] * LONGEST)
    page = tmp_path / "page.md"
    page.write_text(
        f"One {words}.\n\n- Two\n  {words}.\n\n| a | Three {words} |\n\n```\nFour {words}\n```\n`a {words}`\n"
    )
    assert [each.text.split()[0] for each in long_sentences(page)] == ["One", "Two", "Three"]
    assert [each.line for each in long_sentences(page)] == [1, 3, 6]


def test_a_retired_word_is_found_in_a_paragraph_an_item_and_a_cell(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "The host is\ntold of it.\n\n- Nobody\n\n| a | for whom |\n\n```\nnobody\n```\n`whoever` <!-- nobody -->\n"
    )
    assert [each.removeprefix(f"{page}:") for each in retired_words(page)] == [
        "1: retired word: is told of",
        "4: retired word: Nobody",
        "6: retired word: for whom",
    ]


# --- limits ----------------------------------------------------------------------------------------------------------


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
        "server.max_streams_per_context": "100",
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
        "tasks.ttl.default": "1h",
        "tasks.ttl.keep": "30m",
        "tasks.ttl.max": "1d",
        "tasks.ttl.min": "None",
        "auth.lookup_failures.threshold": "20",
        "auth.lookup_failures.window": "1m",
        "auth.lookup_failures.penalty": "5m",
        "auth.token_cache.max_ttl": "1m",
    }
    assert {key: at(config, key) for key in told} == told
    texts = (
        "10, 100, 1,000 |",
        "256 MiB, 2 GiB |",
        "| 100 | `sessions_per_context` |",
        "| 100 | `server.max_streams_per_context` |",
        "10 times as often as suggested",
        "| 32 | `upstreams.*.concurrency` |",
        "| 256, 5 min; 10 s if the host waits;",
        "| 8; 7 for one caller alone | `upstreams.*.processes` |",
        "| 5 times in 30 s, or 3 checks in a row |",
        "| circuit open for 30 s, or until a check succeeds; for one caller alone if only its calls fail |",
        "16 MiB |",
        "30 min, 8 |",
        "4 GiB |",
        "4 MiB, 16 KiB, 64 levels",
        "| 20 a minute | `auth.lookup_failures` | none for 5 min |",
        "| time to live, if the host requests none | 1 h |",
    )
    for text in texts:
        assert text in LIMITS
    for text in (
        "At most `processes` (8) of a program",
        "`pool.idle_timeout`\n(1 min)",
        "`timeouts.first_byte` (30 s)",
    ):
        assert text in SERVERS
    assert "`auth.token_cache.max_ttl` (60 s)" in IDENTITY.read_text(encoding="utf-8")


def test_every_rate_is_told_with_its_default() -> None:
    rates = {each["name"]: (each["rate"], each["burst"]) for each in defaults(mode="none")["limits"]["rate"]}
    assert rates == {
        "ip": ("1000/s", 2000),
        "auth_failures": ("1/s", 20),
        "handshake": ("50/s", 500),
        "calls": ("10/s", 60),
        "polls": ("20/s", 60),
        "rest": ("40/s", 400),
        "bodies": ("16384/s", 65536),
    }
    for text in (
        "1,000 a second, 2,000 at once | `limits.rate`: `ip` |",
        "1 a second, 20 at once | `auth_failures` |",
        "10, 20 a second; 60, 60 at once | `calls`, `polls` |",
        "50, 40 a second; 500, 400 at once | `handshake`, `rest` |",
    ):
        assert text in LIMITS


def test_what_depends_on_whether_callers_are_known_is_told_for_both() -> None:
    known = defaults(mode="required", issuers={"corp": {"issuer": "https://idp.example.com/"}})
    assert (at(known, "tasks.ttl.max"), at(known, "auth.issuers.corp.jwks.refresh")) == ("1d", "5m")
    assert "| time to live without authentication | 1 h |" in LIMITS
    assert "| time to live with authentication | at least 1 h, at most 24 h; up to 7 d possible |" in LIMITS
    assert "(`jwks.refresh`, 5 min)" in IDENTITY.read_text(encoding="utf-8")
    assert MAX_TOKEN == 32 * 1024
    assert "| bearer token | 32 KiB | within `server.max_header` |" in LIMITS
