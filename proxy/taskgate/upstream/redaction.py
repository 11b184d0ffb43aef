"""What a server says, made fit for the log: secrets that it was given taken out, and bounded.

What must not live here: how much of it is told (`stdio.chatter`, `reception`). Pure.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

SHOWN: Final = 1000
"""Characters of a line that are told."""
_SHORTEST: Final = 4
"""A value of fewer characters is a switch or a number rather than a secret; to take it out would tell less."""
_MARK: Final = "[redacted]"


class SecretRedaction:
    """Takes values that the operator named, as those of a program's environment, out of what a server says."""

    __slots__ = ("_longest", "_secrets")

    def __init__(self, values: Iterable[str]) -> None:
        secrets = sorted({part for value in values for part in _parts(value)}, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, secrets))) if secrets else None
        self._longest = len(secrets[0]) if secrets else 0

    @property
    def needed(self) -> int:
        """Characters of a line that are needed so that what is told of it is right; each is up to four bytes."""
        return SHOWN + self._longest

    def told(self, said: bytes, *, is_whole: bool = True) -> str:
        """What is told of a line, of which there may be more unless it `is_whole`."""
        text = said.decode("utf-8", "replace").rstrip()
        if self._secrets is not None:
            text = self._secrets.sub(_MARK, text)
            if not is_whole:
                # What is cut off here may be the beginning of a secret.
                text = text[: max(0, len(text) - self._longest)]
        return text if is_whole and len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _parts(value: str) -> Iterator[str]:
    """A secret of several lines is told by lines, and each may be told as it is written in JSON or by Python."""
    for part in (value, *value.splitlines()):
        if len(part) >= _SHORTEST:
            yield from (part, *_written(part))


def _written(text: str) -> Iterator[str]:
    """The ways to write a text between quotes; some write slashes and single quotes in two ways."""
    for written in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
        yield from (written[1:-1], written[1:-1].replace("/", "\\/"))
    # With a quote of the other kind in front the single ones are escaped, and it is not.
    for written in (repr('"' + text), ascii('"' + text)):
        escaped = written[2:-1]
        yield from (escaped, escaped.replace("\\'", "'"), escaped.replace("\\'", "'").replace('"', '\\"'))
