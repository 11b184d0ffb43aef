"""The result of a check: `Findings`, with an error or a warning for each thing that it found.

An error is what keeps `taskgate serve` from starting, or the gateway from ever being ready. A
warning is what surprises later. `check_configuration` in `checks` fills the lists.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that was found: the dotted path of a key, and a text with what to do."""

    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


@dataclass(slots=True)
class Findings:
    """The errors and warnings of one configuration, in the order in which they were found.

    `hide` masks what may be secret in their texts.
    """

    hide: Callable[[str], str] = str
    errors: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)

    def error(self, key: str, message: str) -> None:
        """Add an error."""
        self.errors.append(Finding(key, self.hide(message)))

    def refused(self, error: Exception) -> None:
        """Add the error that a start would end with. Its text names the key."""
        self.errors.append(Finding("", self.hide(str(error))))

    def warn(self, key: str, message: str) -> None:
        """Add a warning."""
        self.warnings.append(Finding(key, self.hide(message)))
