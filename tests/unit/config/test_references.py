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
EXPECTED = (
    "$ must begin ${NAME}, ${NAME:-default} or ${file:/path}, in quotes within [] or {}; "
    "a dollar sign itself is written $$"
)
ENVIRON = {"NAME": "value", "EMPTY": "", "_a1": "x", "DOLLAR": "${NAME}"}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("plain", "plain"),
        ("${NAME}", "value"),
        ("a ${NAME}${_a1} b", "a valuex b"),
        ("${EMPTY}", ""),
        ("${EMPTY:-default}", "default"),
        ("${NAME:-default}", "value"),
        ("${NONE:-default}", "default"),
        ("${NONE:-}", ""),
        ("${NONE:-a:-b}", "a:-b"),
        ("${NONE:-http://a:80/$$}", "http://a:80/$$"),
        ("$$", "$"),
        ("$..password", "$..password"),
        ("$.a[?@.b == '$$']", "$.a[?@.b == '$']"),
        ("$['a']", "$['a']"),
        ("$${NAME}", "${NAME}"),
        ("$$$$", "$$"),
        ("${DOLLAR}", "${NAME}"),
        ("${file:/none:-default}", "default"),
    ],
)
def test_a_reference_stands_for_what_it_names(text: str, meant: str) -> None:
    found = expand(text, ENVIRON)
    assert (found.text, found.problems) == (meant, ())


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        ("${NONE}", ["the environment variable NONE is not set"]),
        ("${NONE}${NADA}", ["the environment variable NONE is not set", "the environment variable NADA is not set"]),
        *((text, [EXPECTED]) for text in ("$", "a$b", "${", "${}", "${1a}", "${a-b}", "$(NAME)", "${NAME:default}")),
        *((text, [EXPECTED]) for text in ("${file:relative}", "${file:}", "${ NAME }", "${NAME")),
        ("${file:/none}", ["the file /none cannot be read: No such file or directory"]),
        ("${file:/}", ["the file / cannot be read: Is a directory"]),
        ("${file:/a\0b}", ["the file /a\0b cannot be read: no file can have this name"]),
    ],
)
def test_a_reference_to_nothing_is_a_complaint(text: str, complaints: list[str]) -> None:
    assert list(expand(text, ENVIRON).problems) == complaints


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


def test_what_a_reference_gives_is_read_as_if_it_were_written_there(loads: Loads, file: Path, minimal: str) -> None:
    text = minimal + "server:\n  max_json_depth: ${DEPTH}\nstore:\n  sqlite:\n    path: '${PLACE}'\n"
    config = loads(text, {"DEPTH": "12", "PLACE": "7"})
    assert (config.server.max_json_depth, config.store.sqlite.path) == (12, file.parent / "7")


# --- what is shown of it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("${NAME}", MASK),
        ("https://h/s/${NAME}/mcp", f"https://h/s/{MASK}/mcp"),
        ("${NAME}-${_a1}", f"{MASK}-{MASK}"),
        ("${EMPTY}", MASK),
        ("${NAME:-default}", MASK),
        ("${NONE:-default}/${NAME}", f"default/{MASK}"),
        ("$$ $.a", "$ $.a"),
    ],
)
def test_a_text_is_shown_without_what_came_from_outside_of_the_file(text: str, shown: str) -> None:
    assert expand(text, ENVIRON).shown == shown


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


def test_what_a_reference_gives_is_never_yaml(tells: Tells, minimal: str) -> None:
    told = tells(minimal + "server: '${ALL}'\n", {"ALL": "{max_body: 1MiB}"})
    assert told == ["f:5: server: must be a mapping of keys to values"]


def test_every_reference_to_nothing_is_told_and_hides_no_other_problem(tells: Tells, minimal: str) -> None:
    more = "server:\n  max_body: ${ONE}\n  max_header: ${TWO}${THREE}\n  max_json_depth: x\n"
    assert tells(minimal + more) == [
        "f:6: server.max_body: the environment variable ONE is not set",
        "f:7: server.max_header: the environment variable TWO is not set",
        "f:7: server.max_header: the environment variable THREE is not set",
        "f:8: server.max_json_depth: must be a whole number",
    ]


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
