"""The servers in a file of a host: `read_list` reads them, and `ServerList.replacement` is the new file.

Claude Code, Claude Desktop and Cursor have `mcpServers`, and VS Code has `servers`. Values of the
environment and of headers become references to variables, because they may be secrets.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

_KEYS: Final = ("mcpServers", "servers")
_LARGEST: Final = 2**20
_COMMENT: Final = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA: Final = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')
_REFERENCE: Final = re.compile(r"\$\{([^}]*)\}|\$")
_VARIABLE: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(:-.*)?", re.DOTALL)
_SCHEME: Final = re.compile(r"(?i)(bearer|basic|token) ")
_MAX_NAME: Final = 64


class ListInvalid(ValueError):
    """The file cannot be used; the text is for the operator."""


class ListedServer(NamedTuple):
    """One server. `key` is its name in the file, and `name` that of the upstream.

    Texts are as the configuration has them: references to variables, and `$$` for a dollar sign.
    """

    key: str
    name: str
    transport: str
    url: str | None
    command: tuple[str, ...]
    env: Mapping[str, str]
    headers: Mapping[str, str]
    cwd: str | None

    @property
    def path(self) -> str:
        """The path that hosts use."""
        return f"/{self.name}/mcp"


class ServerList(NamedTuple):
    """The servers of a file, whose list is at `key`, and the variables that they need."""

    key: str
    servers: tuple[ListedServer, ...]
    variables: tuple[str, ...]

    def replacement(self, base: str) -> str:
        """The new file of the host; `base` is the URL of the gateway."""
        entries = {server.key: {"type": "http", "url": base + server.path} for server in self.servers}
        return json.dumps({self.key: entries}, ensure_ascii=False, indent=2)


def read_list(file: Path) -> ServerList:
    """Read a file. Raises ListInvalid."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST + 1)
    except OSError as error:
        raise ListInvalid(f"{file} cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST:
        raise ListInvalid(f"{file} is larger than 1 MiB")
    try:
        # VS Code takes comments, and commas at the end.
        plain = _COMMENT.sub(lambda found: found[1] or " ", content.decode("utf-8-sig"))
        document = json.loads(_LAST_COMMA.sub(lambda found: found[1] or "", plain))
    except (ValueError, RecursionError):
        raise ListInvalid(f"{file} is not JSON") from None
    key = next((key for key in _KEYS if isinstance(document, dict) and isinstance(document.get(key), dict)), None)
    if key is None or not document[key]:
        raise ListInvalid(f"{file} has no servers: neither mcpServers nor servers has any")
    return _Reader(file).read(key, document[key])


class _Reader:
    """The names that are in use, and the variables with the values that the file has for them."""

    def __init__(self, file: Path) -> None:
        self._file = file
        folder = file.absolute().parent
        self._folders = {
            "workspaceFolder": str(folder.parent if folder.name in (".vscode", ".cursor") else folder),
            "userHome": str(Path.home()),
        }
        self._names = set[str]()
        self._values: dict[str, str | None] = {}

    def read(self, key: str, entries: Mapping[str, Any]) -> ServerList:
        servers = tuple(self._server(name, entry) for name, entry in entries.items())
        return ServerList(key, servers, tuple(self._values))

    def _server(self, key: str, entry: Any) -> ListedServer:
        if not isinstance(entry, dict) or isinstance(entry.get("url"), str) == isinstance(entry.get("command"), str):
            raise ListInvalid(f"{self._file}: {key!r} must have one of url and command")
        name = self._name(key)
        url, args = entry.get("url"), entry.get("args") or []
        if not isinstance(args, list) or not all(isinstance(each, str) for each in args):
            raise ListInvalid(f"{self._file}: args of {key!r} must be a list of texts")
        is_sse = entry.get("type") == "sse" or entry.get("transport") == "sse"
        cwd = entry.get("cwd")
        return ListedServer(
            key=key,
            name=name,
            transport="stdio" if url is None else "sse" if is_sse else "http",
            url=None if url is None else self._text(url),
            command=() if url is not None else tuple(self._text(each) for each in (entry["command"], *args)),
            env={each: self._secret(each, each, name, value) for each, value in self._texts(key, entry, "env")},
            headers={
                each: self._secret(f"{name}_{each}", each, name, value)
                for each, value in self._texts(key, entry, "headers")
            },
            cwd=self._text(cwd) if isinstance(cwd, str) else None,
        )

    def _name(self, key: str) -> str:
        base = re.sub("[^a-z0-9_-]+", "-", key.lower()).strip("-_")[: _MAX_NAME - 4] or "server"
        names = (base if number == 1 else f"{base}-{number}" for number in range(1, 1000))
        name = next(name for name in names if name not in self._names)
        self._names.add(name)
        return name

    def _texts(self, key: str, entry: Mapping[str, Any], part: str) -> Iterator[tuple[str, str]]:
        found = entry.get(part) or {}
        if not isinstance(found, dict):
            raise ListInvalid(f"{self._file}: {part} of {key!r} must have names and texts")
        for name, value in found.items():
            yield name, value if isinstance(value, str) else json.dumps(value)

    def _secret(self, variable: str, own: str, server: str, value: str) -> str:
        """A value as a reference to a variable, or with the references that it has."""
        if "${" in value:
            return self._text(value)
        scheme = _SCHEME.match(value) if variable != own else None
        start = "" if scheme is None else scheme[0]
        variable = _as_variable(variable) if variable != own else variable
        if self._values.get(variable, value) != value:
            # Another server has another value.
            variable = _as_variable(f"{server}_{variable}")
        self._values[variable] = value
        return f"{start}${{{variable}}}"

    def _text(self, text: str) -> str:
        return _REFERENCE.sub(self._reference, text)

    def _reference(self, found: re.Match[str]) -> str:
        inner = found[1]
        if inner is None:
            return "$$"
        if inner in self._folders:
            return self._folders[inner].replace("$", "$$")
        variable = _VARIABLE.fullmatch(inner)
        if variable is None and inner.startswith("input:"):
            name, default = _as_variable(inner.removeprefix("input:")), ""
        elif variable is None:
            return found[0].replace("$", "$$")
        else:
            name, default = variable[1], variable[2] or ""
        if not default:
            self._values.setdefault(name, None)
        return f"${{{name}{default}}}"


def _as_variable(text: str) -> str:
    """A text as the name of a variable of the environment."""
    name = re.sub("[^A-Z0-9]+", "_", text.upper()).strip("_")
    return name if re.match("[A-Z]", name) else f"V_{name}"
