"""Relative paths belong to the file that has them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taskgate.config import GatewayConfig, effective, load

Loads = Callable[..., GatewayConfig]

WITH_PATHS = """\
version: 1
auth: {mode: required, issuers: {corp: {issuer: "https://idp", jwks_file: in/1}}, context: {key_file: in/2}}
upstreams:
  http:
    {path: /a, url: "https://a", tls: {ca_file: in/3, cert_file: in/4, key_file: in/5}, credentials: {mode: mtls}}
  program: {path: /b, transport: stdio, command: [python3], cwd: in/6}
server: {tls: {cert_file: in/7, key_file: in/8, client_auth: require, client_ca_file: in/9}}
admin: {token_file: in/10}
store:
  sqlite: {path: in/11}
  redis: {tls: {ca_file: in/12, cert_file: in/13, key_file: in/14}}
audit:
  hmac_key_file: in/15
  chain: {sign_key_file: in/16}
  sinks: [{name: file, type: file, path: in/17}]
"""


def paths(value: Any) -> set[str]:
    """The texts in written values that are paths of the file above."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return {path for each in inner for path in paths(each)}
    return {value} if isinstance(value, str) and "in/" in value else set()


def test_every_relative_path_is_relative_to_the_folder_of_its_file(loads: Loads, file: Path) -> None:
    found = paths(loads(WITH_PATHS).model_dump(mode="json"))
    assert found == {str(file.parent / "in" / str(number)) for number in range(1, 18)}


def test_an_absolute_path_stays(loads: Loads, minimal: str) -> None:
    path = loads(minimal + "store: {sqlite: {path: /var/lib/taskgate.db}}\n").store.sqlite.path
    assert path == Path("/var/lib/taskgate.db")


def test_where_taskgate_starts_does_not_matter(
    tmp_path: Path, file: Path, minimal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(minimal + "store: {sqlite: {path: tasks.db}}\n")
    found = set()
    for folder, name in ((tmp_path, "taskgate.yaml"), (tmp_path.parent, f"{tmp_path.name}/taskgate.yaml")):
        monkeypatch.chdir(folder)
        found.add(load(Path(name), {}).store.sqlite.path)
    assert found == {tmp_path / "tasks.db"}


def test_what_is_written_back_means_the_same_in_another_folder(loads: Loads, tmp_path: Path, minimal: str) -> None:
    config = loads(minimal + "store: {sqlite: {path: tasks.db}}\n")
    other = tmp_path / "other" / "taskgate.yaml"
    other.parent.mkdir()
    other.write_text(effective(config))
    assert load(other, {}) == config
