"""What `${…}` stands for, and that a secret is in no complaint."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from requirements import covers
from taskgate.config import GatewayConfig, effective
from taskgate.config.document import MAX_SECRET, expand, read_document
from taskgate.config.fields import MASK

Loads = Callable[..., GatewayConfig]
Tells = Callable[..., list[str]]

CONFIG = Path(__file__).resolve().parents[3] / "config"
ENVIRON = {"NAME": "value", "EMPTY": "", "_a1": "x", "DOLLAR": "${NAME}"}


@pytest.mark.parametrize(
    ("content", "reference", "meant"),
    [
        (b"secret\n", "${file:%s}", "secret"),
        (b"two\nlines\r\n\n", "${file:%s}", "two\nlines"),
        (b" spaces \n", "${file:%s}", " spaces "),
        (b"${NAME}", "${file:%s}", "${NAME}"),
        (b"\n", "${file:%s}", ""),
        (b"\n", "${file:%s:-default}", "default"),
        (b"secret", "${file:%s:-default}", "secret"),
    ],
)
def test_a_file_stands_for_its_content(tmp_path: Path, content: bytes, reference: str, meant: str) -> None:
    (tmp_path / "secret").write_bytes(content)
    assert expand(reference % (tmp_path / "secret"), ENVIRON).text == meant


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"\xff", "is not UTF-8 text"), (b"s" * (MAX_SECRET + 1), "is larger than 64KiB")],
    ids=["bytes", "large"],
)
def test_a_file_that_is_no_secret_is_a_complaint(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    found = expand(f"${{file:{path}:-default}}", {})
    assert (found.text, found.problems) == ("", (f"the file {path} {complaint}",))


# --- what is shown of it ---------------------------------------------------------------------------------------------


class Planted:
    """A file with a variable in the place of each scalar: its text, the variables, and where they are."""

    def __init__(self, raw: object) -> None:
        self.environ: dict[str, str] = {}
        self.places: set[tuple[str | int, ...]] = set()
        self.text = "".join(self._lines(raw, ()))

    def _lines(self, node: Any, place: tuple[str | int, ...]) -> Iterator[str]:
        for key, each in node.items() if isinstance(node, dict) else enumerate(node):
            head = "  " * len(place) + ("-" if isinstance(key, int) else f"{json.dumps(key)}:")
            if isinstance(each, dict | list) and each:
                yield f"{head}\n"
                yield from self._lines(each, (*place, key))
            else:
                yield f"{head} {self._scalar(each, (*place, key))}\n"

    def _scalar(self, value: object, place: tuple[str | int, ...]) -> str:
        if value is None or isinstance(value, dict | list):
            return json.dumps(value)
        name = f"V{len(self.environ)}"
        self.environ[name] = value if isinstance(value, str) else json.dumps(value)
        self.places.add(place)
        return f'"${{{name}}}"' if isinstance(value, str) else f"${{{name}}}"


def masked(node: Any, places: set[tuple[str | int, ...]], here: tuple[str | int, ...] = ()) -> Any:
    """A tree with the mask at these places."""
    if here in places:
        return MASK
    if isinstance(node, dict):
        return {key: masked(each, places, (*here, key)) for key, each in node.items()}
    if isinstance(node, list):
        return [masked(each, places, (*here, index)) for index, each in enumerate(node)]
    return node


def shown_tree(config: GatewayConfig) -> Any:
    return YAML(typ="safe", pure=True).load(effective(config))


@covers("T38")
def test_whatever_key_a_reference_is_in_its_value_is_not_shown(loads: Loads) -> None:
    text = (CONFIG / "full.yaml").read_text(encoding="utf-8")
    planted = Planted(read_document(text, file="full.yaml", environ={}).raw)
    config = loads(planted.text, planted.environ)
    assert config == loads(text).with_references(config.references)
    assert len(planted.places) > 200
    shown = shown_tree(config)
    assert shown == masked(shown_tree(loads(text)), planted.places)
    assert effective(config).count(MASK) >= len(planted.places), "a key is at another place than in the file"


@covers("T38")
def test_no_complaint_quotes_the_value_of_a_reference_in_any_key(tells: Tells) -> None:
    text = (CONFIG / "full.yaml").read_text(encoding="utf-8")
    planted = Planted(read_document(text, file="full.yaml", environ={}).raw)
    told = tells(planted.text, {name: f"planted \0 {name}" for name in planted.environ})
    assert len(told) > 150
    assert [line for line in told if "planted" in line] == []


@covers("T38")
def test_what_is_said_of_a_file_hides_the_values_of_references(loads: Loads, minimal: str) -> None:
    text = minimal + "store: {sqlite: {path: '${PLACE}/tasks-of-${WHO}.db'}}\nserver: {public_url: '${OWN}'}\n"
    found = loads(text, {"PLACE": "/data/s3cret", "WHO": "/data/s3cret/x", "OWN": "https://mcp.example.com"}).references
    said = "/data/s3cret/x and /data/s3cret/y of https://mcp.example.com"
    assert found.hide(said) == f"{MASK} and {MASK}/y of https://mcp.example.com"
    assert found.hide("plain") == "plain"
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    "key",
    [
        "server.listen",
        "server.public_url",
        "server.max_body",
        "server.max_json_depth",
        "server.drain.running_tasks",
        "upstreams.reports.path",
        "upstreams.reports.url",
        "upstreams.reports.timeouts.call",
        "tasks.ttl.max",
        "auth.mode",
        "store.backend",
        "logging.level",
        "version",
    ],
)
def test_a_secret_in_the_wrong_place_is_in_no_complaint(
    tells: Tells, with_key: Callable[[str, str], str], key: str
) -> None:
    told = tells(with_key(key, "${SECRET}"), {"SECRET": "hunter2 http://user:hunter2@a"})
    assert told
    assert "hunter2" not in "".join(told)
