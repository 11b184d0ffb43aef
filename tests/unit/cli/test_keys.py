"""`taskgate keys`: a key is printed once, and its hash is all that goes into a file."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from helpers.command_line import run
from helpers.secrets import noted
from requirements import covers
from taskgate.auth.api_keys import key_digest, new_key
from taskgate.cli import main
from taskgate.clock import SystemEntropy
from taskgate.config import load

ENTRY = "The entry of the configuration, under a name of your choice:\n"


@pytest.mark.parametrize(("options", "name"), [((), "NAME"), (("--name", "ci-2"), "ci-2"), (("--name", "123"), "123")])
def test_a_new_key_is_printed_once_with_the_entry_of_its_hash(options: tuple[str, ...], name: str) -> None:
    status, printed, errors = run("keys", "new", *options)
    (key,) = re.findall("tgk_[A-Za-z0-9_-]+", printed)
    entry = YAML(typ="safe").load(printed.partition(ENTRY)[2])
    hashed = {"hash": f"sha256:{key_digest(key)}", "subject": name}
    assert entry == {"auth": {"mode": "required", "api_keys": {name: hashed}}}
    assert (status, errors) == (0, "")


def test_no_key_is_made_twice() -> None:
    assert len({run("keys", "new")[1] for _ in range(3)}) == 3


def test_the_entry_is_good_as_it_is_printed(tmp_path: Path) -> None:
    entry = run("keys", "new", "--name", "ci")[1].partition(ENTRY)[2]
    file = tmp_path / "taskgate.yaml"
    file.write_text(f"version: 1\n{entry}upstreams: {{a: {{path: /mcp, url: 'http://127.0.0.1:9/mcp'}}}}\n")
    assert [*load(file, {}).auth.api_keys] == ["ci"]


@pytest.mark.parametrize("name", ["", "-", "Ann", "a b", "a" * 65, "a\n"])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    status, printed, errors = run("keys", "new", "--name", name)
    assert (status, printed) == (2, "")
    assert "--name must be" in errors


@pytest.mark.parametrize("around", ["", "\n", " \r\n"])
def test_the_hash_of_a_key_is_that_of_the_key_without_the_end_of_its_line(around: str) -> None:
    key = noted(new_key(SystemEntropy()))
    ended = CliRunner().invoke(main, ["keys", "hash"], input=key + around)
    assert (ended.exit_code, ended.stdout) == (0, f"sha256:{key_digest(key)}\n")


@covers("A-AUTH-18")
@pytest.mark.parametrize("text", ["", "secret", "tgk_short", "tgk_" + 30 * "a" + "\ntgk_" + 30 * "b", 2000 * "a"])
def test_what_is_no_key_or_too_short_has_no_hash_and_is_not_quoted(text: str) -> None:
    ended = CliRunner().invoke(main, ["keys", "hash"], input=text)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "must hold one API key" in ended.stderr
    assert "secret" not in ended.stderr
    assert "aaaa" not in ended.stderr
