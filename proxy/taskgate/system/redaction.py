"""Redaction of server output: `SecretRedaction` removes configured secrets from many lines of the log. Pure.

Used for the standard error of programs (`stdio.stderr_log`) and for error texts (`HandshakeLog`). `without`
is for single texts, such as bodies of refusals (`call_streams`).
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

SHOWN: Final = 1000
"""Characters of a line that are logged."""
_SHORTEST: Final = 4
"""Characters of the shortest value that is redacted. A shorter one is rather a switch or a number,
and a line without it says less."""
_MARK: Final = "[redacted]"


class SecretRedaction:
    """The replacement of values that the operator configured, such as a program's environment, in server
    output."""

    __slots__ = ("_longest", "_secrets")

    def __init__(self, values: Iterable[str]) -> None:
        secrets = sorted({part for value in values for part in _parts(value)}, key=len, reverse=True)
        # A lookahead, because a secret may begin within another, or within what is written before it.
        self._secrets = re.compile(f"(?=({'|'.join(map(re.escape, secrets))}))") if secrets else None
        self._longest = len(secrets[0]) if secrets else 0

    @property
    def needed(self) -> int:
        """How many characters of a line `redacted` needs at most; each is up to four bytes."""
        return SHOWN + self._longest

    def redacted(self, said: bytes, *, is_whole: bool = True) -> str:
        """Return the text to log of a line: redacted, and at most SHOWN characters.

        `is_whole` False: `said` is only the beginning of the line, of `needed` characters.
        """
        text = said.decode("utf-8", "replace").rstrip()
        if self._secrets is not None:
            text = self.marked(text)
            if not is_whole:
                # The end of a cut line may be the beginning of a secret.
                text = text[: max(0, len(text) - self._longest)]
        return text if is_whole and len(text) <= SHOWN else f"{text[:SHOWN]}…"

    def marked(self, text: str) -> str:
        """Replace the secrets in a text, and secrets that overlap by one mark."""
        shown, end = "", 0
        for match in self._secrets.finditer(text) if self._secrets is not None else ():
            start, stop = match.span(1)
            if start >= end:
                shown += text[end:start] + _MARK
            end = max(end, stop)
        return shown + text[end:]


def without(values: Iterable[str], text: str) -> str:
    """Return one text without these values. Patterns cost much: one is made only if a value is there."""
    found = {part for value in values for part in _parts(value) if part in text}
    return SecretRedaction(found).marked(text) if found else text


def _parts(value: str) -> Iterator[str]:
    """Yield the forms of a secret: each of its lines, and each as written in JSON or by Python."""
    for part in (value, *value.splitlines()):
        if len(part) >= _SHORTEST:
            yield from (part, *_written(part))


def _written(text: str) -> Iterator[str]:
    """Yield the ways to write a text between quotes; some escape slashes and single quotes."""
    for written in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
        yield from (written[1:-1], written[1:-1].replace("/", "\\/"))
    # With the other quote in front, single quotes are escaped and double quotes are not.
    for written in (repr('"' + text), ascii('"' + text)):
        escaped = written[2:-1]
        yield from (escaped, escaped.replace("\\'", "'"), escaped.replace("\\'", "'").replace('"', '\\"'))
