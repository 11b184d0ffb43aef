"""What `${…}` stands for, and that a secret is in no complaint."""

from collections.abc import Callable
from pathlib import Path

import pytest

from taskgate.config import GatewayConfig
from taskgate.config.document import MAX_SECRET, expand

Loads = Callable[..., GatewayConfig]
Tells = Callable[..., list[str]]

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
    assert expand(text, ENVIRON) == (meant, [])


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
    assert expand(text, ENVIRON)[1] == complaints


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
    assert expand(reference % (tmp_path / "secret"), ENVIRON) == (meant, [])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"\xff", "is not UTF-8 text"), (b"s" * (MAX_SECRET + 1), "is larger than 64KiB")],
    ids=["bytes", "large"],
)
def test_a_file_that_is_no_secret_is_a_complaint(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    assert expand(f"${{file:{path}:-default}}", {}) == ("", [f"the file {path} {complaint}"])


def test_what_a_reference_gives_is_read_as_if_it_were_written_there(loads: Loads, file: Path, minimal: str) -> None:
    text = minimal + "server:\n  max_json_depth: ${DEPTH}\nstore:\n  sqlite:\n    path: '${PLACE}'\n"
    config = loads(text, {"DEPTH": "12", "PLACE": "7"})
    assert (config.server.max_json_depth, config.store.sqlite.path) == (12, file.parent / "7")


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
