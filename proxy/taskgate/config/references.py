"""References in a text of a file: `${NAME}`, `${file:/path}` and the dollar sign.

The value of a reference is never searched for references again, and no message shows it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from taskgate.system.secret_files import ADVICE, is_exposed

MAX_SECRET = 2**16

_REFERENCE = re.compile(r"\$(?:(?P<dollar>\$|(?=[.\[]))|\{(?P<body>[^}]*)\})?")
_BODY = re.compile(r"(?:file:(?P<file>/.*?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*))(?::-(?P<default>.*))?", re.DOTALL)

_EXPECTED = (
    "$ must begin ${NAME}, ${NAME:-default} or ${file:/path}, in quotes within [] or {}; "
    "a dollar sign itself is written $$"
)


class _Unresolved(Exception):
    """A reference that has no value; the text says why."""


def expand(text: str, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """Replace every reference in `text`; return it with a message for each unresolved one.

    - `${NAME}` is a variable that must be set.
    - `${NAME:-default}` is the default where the variable is unset or empty, as in a shell.
    - `${file:/path}` is the content of a file without the line ends after it. A default is given
      in the same way.
    - `$$` is one dollar sign, and so is `$` before `.` or `[`, with which JSONPaths begin.

    Any other `$` is a problem, so that a mistyped reference is never taken literally.
    """
    problems: list[str] = []

    def replace(match: re.Match[str]) -> str:
        try:
            return "$" if match["dollar"] is not None else _resolve(match["body"], environ)
        except _Unresolved as unresolved:
            problems.append(str(unresolved))
            return ""

    return _REFERENCE.sub(replace, text), problems


def _resolve(body: str | None, environ: Mapping[str, str]) -> str:
    reference = None if body is None else _BODY.fullmatch(body)
    if reference is None:
        raise _Unresolved(_EXPECTED)
    if reference["file"]:
        return _content(Path(reference["file"]), reference["default"])
    value = environ.get(reference["name"])
    if reference["default"] is not None:
        return value or reference["default"]
    if value is None:
        raise _Unresolved(f"the environment variable {reference['name']} is not set")
    return value


def _content(path: Path, default: str | None) -> str:
    try:
        with path.open("rb") as stream:
            if is_exposed(path, os.fstat(stream.fileno()).st_mode, str(path)):
                raise _Unresolved(f"the file {path} {ADVICE}")
            content = stream.read(MAX_SECRET + 1)
        text = content.decode()
    except FileNotFoundError as error:
        if default is None:
            raise _Unresolved(f"the file {path} cannot be read: {error.strerror}") from None
        return default
    except OSError as error:
        raise _Unresolved(f"the file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _Unresolved(f"the file {path} is not UTF-8 text") from None
    except ValueError:
        raise _Unresolved(f"the file {path} cannot be read: no file can have this name") from None
    if len(content) > MAX_SECRET:
        raise _Unresolved(f"the file {path} is larger than 64KiB")
    return text.rstrip("\r\n") or default or ""
