"""What `${…}` in a scalar stands for.

What lives here: environment variables, secret files and the dollar sign itself. What must not: YAML, keys, lines.
What holds: what a reference gives is never read for references again, and its value is in no complaint.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from taskgate.system.secret_files import ADVICE, is_exposed

LARGEST_SECRET = 2**16

_REFERENCE = re.compile(r"\$(?:(?P<dollar>\$|(?=[.\[]))|\{(?P<body>[^}]*)\})?")
_BODY = re.compile(r"(?:file:(?P<file>/.*?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*))(?::-(?P<default>.*))?", re.DOTALL)

_EXPECTED = (
    "$ must begin ${NAME}, ${NAME:-default} or ${file:/path}, in quotes within [] or {}; "
    "a dollar sign itself is written $$"
)


class _Unresolved(Exception):
    """A reference that stands for nothing; the text says why."""


def expand(text: str, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """The text with every reference replaced, and a complaint for each that could not be.

    `${NAME}` is a variable that must be set; `${NAME:-default}` gives the default where it is unset or empty, as a
    shell does; `${file:/path}` is the content of a file without the line ends after it, with a default in the same
    way; `$$` is one dollar sign, and so is `$` before `.` or `[`, with which JSONPaths begin. Any other `$` is a
    complaint, so that a mistyped reference is never taken literally.
    """
    complaints: list[str] = []

    def replaced(match: re.Match[str]) -> str:
        try:
            return "$" if match["dollar"] is not None else _resolved(match["body"], environ)
        except _Unresolved as unresolved:
            complaints.append(str(unresolved))
            return ""

    return _REFERENCE.sub(replaced, text), complaints


def _resolved(body: str | None, environ: Mapping[str, str]) -> str:
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
            content = stream.read(LARGEST_SECRET + 1)
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
    if len(content) > LARGEST_SECRET:
        raise _Unresolved(f"the file {path} is larger than 64KiB")
    return text.rstrip("\r\n") or default or ""
