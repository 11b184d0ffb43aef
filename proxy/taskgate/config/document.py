"""YAML text as plain values with line numbers: `read_text`, `read_document`, `ConfigDocument`.

The text is YAML 1.2 with its core schema, read from the events of the parser. Time and memory stay
proportional to the text: aliases are refused and nesting is bounded. `expand` replaces references
in a text: `${NAME}`, `${file:/path}` and the dollar sign. The value of a reference is never searched
for references again, and no message shows it. A document has the text that is shown in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, Event, NodeEvent, ScalarEvent, SequenceStartEvent
from ruamel.yaml.reader import ReaderError

from taskgate.config.fields import MASK
from taskgate.config.file_watch import FileStamp, stamp_of
from taskgate.config.problems import ConfigurationError, Location, Problem, dotted
from taskgate.config.references import NO_REFERENCES, References
from taskgate.system.secret_files import ADVICE, read_secret

MAX_SECRET = 2**16

_REFERENCE = re.compile(r"\$(?:(?P<dollar>\$|(?=[.\[]))|\{(?P<body>[^}]*)\})?")
_BODY = re.compile(r"(?:file:(?P<file>/.*?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*))(?::-(?P<default>.*))?", re.DOTALL)

_EXPECTED = (
    "$ must begin ${NAME}, ${NAME:-default} or ${file:/path}, in quotes within [] or {}; "
    "a dollar sign itself is written $$"
)


class _Unresolved(Exception):
    """A reference that has no value; the text says why."""


class Expanded(NamedTuple):
    """A text whose references are replaced.

    `shown` is the text with a mask for each of `values`, which came from variables and files. A
    default is in the file anyway, so it is shown. `problems` has a message for each unresolved
    reference.
    """

    text: str
    shown: str
    values: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def expand(text: str, environ: Mapping[str, str], files: dict[Path, FileStamp] | None = None) -> Expanded:
    """Replace every reference in `text`. The files that references name are added to `files`.

    - `${NAME}` is a variable that must be set.
    - `${NAME:-default}` is the default where the variable is unset or empty, as in a shell.
    - `${file:/path}` is the content of a file without the line ends after it. A default is given
      in the same way.
    - `$$` is one dollar sign, and so is `$` before `.` or `[`, with which JSONPaths begin.

    Any other `$` is a problem, so that a mistyped reference is never taken literally.
    """
    problems: list[str] = []
    files = {} if files is None else files
    # Each piece of the text, and whether it is shown.
    pieces: list[tuple[str, bool]] = []
    end = 0
    for match in _REFERENCE.finditer(text):
        pieces.append((text[end : match.start()], True))
        end = match.end()
        try:
            pieces.append(("$", True) if match["dollar"] is not None else _resolve(match["body"], environ, files))
        except _Unresolved as unresolved:
            problems.append(str(unresolved))
    pieces.append((text[end:], True))
    return Expanded(
        text="".join(piece for piece, _ in pieces),
        shown="".join(piece if is_shown else MASK for piece, is_shown in pieces),
        values=tuple(piece for piece, is_shown in pieces if not is_shown),
        problems=tuple(problems),
    )


def _resolve(body: str | None, environ: Mapping[str, str], files: dict[Path, FileStamp]) -> tuple[str, bool]:
    """Return the value of a reference, and whether it is shown: only a default is. Raises _Unresolved.

    A file that it names is added to `files`.
    """
    reference = None if body is None else _BODY.fullmatch(body)
    if reference is None:
        raise _Unresolved(_EXPECTED)
    name, default = reference["name"], reference["default"]
    if reference["file"]:
        path = Path(reference["file"])
        # Before the content: what is written after it then counts as a change.
        files.setdefault(path, stamp_of(path))
        value = _content(path, default)
    else:
        value = environ.get(name)
    if default is not None and not value:
        return default, True
    if value is None:
        raise _Unresolved(f"the environment variable {name} is not set")
    return value, False


def _content(path: Path, default: str | None) -> str | None:
    """Return the text of a file; None if there is none and it has a default. Raises _Unresolved."""
    try:
        content, exposed = read_secret(path, MAX_SECRET, str(path))
        if exposed:
            raise _Unresolved(f"the file {path} {ADVICE}")
        text = content.decode()
    except FileNotFoundError as error:
        if default is None:
            raise _Unresolved(f"the file {path} cannot be read: {error.strerror}") from None
        return None
    except OSError as error:
        raise _Unresolved(f"the file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _Unresolved(f"the file {path} is not UTF-8 text") from None
    except ValueError:
        raise _Unresolved(f"the file {path} cannot be read: no file can have this name") from None
    if len(content) > MAX_SECRET:
        raise _Unresolved(f"the file {path} is larger than 64KiB")
    return text.rstrip("\r\n")


MAX_FILE = 2**20
_MAX_DEPTH = 32

# Longer numbers stay text: no key accepts them, and Python refuses very long ones.
_SCALARS: tuple[tuple[re.Pattern[str], Callable[[str], object]], ...] = (
    (re.compile(r"|~|null|Null|NULL"), lambda _: None),
    (re.compile(r"true|True|TRUE"), lambda _: True),
    (re.compile(r"false|False|FALSE"), lambda _: False),
    (re.compile(r"[-+]?[0-9]{1,18}"), int),
    (re.compile(r"0o[0-7]{1,18}|0x[0-9a-fA-F]{1,15}"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), lambda text: float(text.replace(".", ""))),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDocument:
    """A YAML document: `raw` has dicts, lists and scalars, `lines` the line of each location.

    `problems` are those of the YAML and its references. Locations in `unusable` are None in `raw`
    because of one, so a missing value there is no further problem. `references` says what is shown
    of scalars with references.
    """

    file: str
    raw: Mapping[str, object]
    lines: Mapping[Location, int]
    problems: tuple[Problem, ...]
    unusable: frozenset[Location]
    references: References = NO_REFERENCES

    def problem(self, location: Location, message: str) -> Problem:
        """Return a problem on the line of its key, or of the nearest key above in the file."""
        known = next(location[:end] for end in range(len(location), -1, -1) if location[:end] in self.lines)
        return Problem(file=self.file, line=self.lines[known], path=dotted(location), message=message)


def read_text(path: Path) -> str:
    """Read the text of a file.

    Raises ConfigurationError when it is missing, unreadable, above 1 MiB or not UTF-8.
    """
    try:
        return _decode(path)
    except _Unreadable as unreadable:
        raise ConfigurationError([unreadable.problem(str(path))]) from None


def read_document(text: str, *, file: str, environ: Mapping[str, str]) -> ConfigDocument:
    """Parse `text` and replace its references.

    Raises ConfigurationError when it is not one YAML mapping.
    """
    builder = _Builder(file=file, environ=environ, events=_events(text))
    try:
        return builder.build()
    except _Unreadable as unreadable:
        raise ConfigurationError([*builder.problems, unreadable.problem(file)]) from None


class _Unreadable(Exception):
    """A problem that ends the reading of a file."""

    def __init__(self, message: str, line: int | None = 1) -> None:
        self.line = line
        super().__init__(message)

    def problem(self, file: str) -> Problem:
        return Problem(file=file, line=self.line, message=str(self))


def _decode(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE + 1)
    except OSError as error:
        raise _Unreadable(f"cannot be read: {error.strerror}", None) from None
    except ValueError:
        raise _Unreadable("cannot be read: no file can have this name", None) from None
    if len(content) > MAX_FILE:
        raise _Unreadable("is larger than 1MiB")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise _Unreadable("is not UTF-8 text", content.count(b"\n", 0, error.start) + 1) from None


def _events(text: str) -> Iterator[Event]:
    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except MarkedYAMLError as error:
        sentence = " ".join(str(error.problem).split())
        mark = error.problem_mark or error.context_mark
        raise _Unreadable(f"is not YAML: {sentence}", mark.line + 1) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _Unreadable("is not YAML: it holds a control character", line) from None


def _line(event: Event) -> int:
    return int(event.start_mark.line) + 1


def _core(text: str) -> object:
    """Return the value of a plain scalar by the core schema of YAML 1.2."""
    return next((read(text) for pattern, read in _SCALARS if pattern.fullmatch(text)), text)


@dataclass(slots=True, kw_only=True)
class _Builder:
    """Builder of one document from the flat events of the parser, so that recursion is bounded.

    `build` is called once and uses up `events`. It collects problems in `problems` and goes on; it
    raises `_Unreadable` where that is impossible.
    """

    file: str
    environ: Mapping[str, str]
    events: Iterator[Event]
    lines: dict[Location, int] = field(default_factory=lambda: {(): 1})
    problems: list[Problem] = field(default_factory=list)
    unusable: set[Location] = field(default_factory=set)
    shown: dict[Location, str] = field(default_factory=dict)
    values: dict[Location, tuple[str, ...]] = field(default_factory=dict)
    files: dict[Path, FileStamp] = field(default_factory=dict)

    def build(self) -> ConfigDocument:
        root = self._root()
        raw = None if root is None else self._value(root, ())
        if root is None or raw is None:
            raise _Unreadable("is empty")
        if not isinstance(raw, dict):
            raise _Unreadable("must be a mapping of keys to values", _line(root))
        if another := self._root():
            raise _Unreadable("must hold one document only", _line(another))
        return ConfigDocument(
            file=self.file,
            raw=raw,
            lines=self.lines,
            problems=tuple(self.problems),
            unusable=frozenset(self.unusable),
            references=References.of(self.shown, self.values, self.files),
        )

    def _root(self) -> Any:
        return next((event for event in self.events if isinstance(event, NodeEvent)), None)

    def _children(self) -> Iterator[Any]:
        while not isinstance(event := next(self.events), CollectionEndEvent):
            yield event

    def _value(self, event: Any, location: Location) -> object:
        if len(location) > _MAX_DEPTH:
            raise _Unreadable(f"is nested deeper than {_MAX_DEPTH} levels", _line(event))
        self.lines.setdefault(location, _line(event))
        if isinstance(event, AliasEvent):
            self._refuse(location, event, "must not be an alias: write the value out")
            return None
        if event.tag is not None:
            self._add_problem(location, event, "must not have a tag")
        if isinstance(event, ScalarEvent):
            return self._scalar(event, location)
        if isinstance(event, SequenceStartEvent):
            return [self._value(item, (*location, index)) for index, item in enumerate(self._children())]
        return self._mapping(location)

    def _scalar(self, event: Any, location: Location) -> object:
        found = expand(event.value, self.environ, self.files)
        masked = [f"must not have {MASK}, which stands for what is not shown"] if MASK in found.text else []
        for problem in (*found.problems, *masked):
            self._refuse(location, event, problem)
        if found.problems or masked:
            return None
        if found.values:
            self.shown[location], self.values[location] = found.shown, found.values
        # `implicit` means without quotes: the text of a reference is then read like a plain scalar.
        return _core(found.text) if event.implicit[0] else found.text

    def _mapping(self, location: Location) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key in self._children():
            if not isinstance(key, ScalarEvent):
                self._add_problem(location, key, "must have plain words as keys")
                self._value(key, (*location, "?"))
                self._value(next(self.events), (*location, "?"))
                continue
            here = (*location, key.value)
            if key.value in mapping:
                self._add_problem(here, key, f"is already given on line {self.lines[here]}")
            self.lines.setdefault(here, _line(key))
            mapping.setdefault(key.value, self._value(next(self.events), here))
        return mapping

    def _refuse(self, location: Location, event: Event, message: str) -> None:
        self._add_problem(location, event, message)
        self.unusable.add(location)

    def _add_problem(self, location: Location, event: Event, message: str) -> None:
        self.problems.append(Problem(file=self.file, line=_line(event), path=dotted(location), message=message))
