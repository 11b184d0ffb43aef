"""What tests of words share: a correspondence that keeps what is said to it."""

from typing import Any

from taskgate.cluster.messages import Word

A, B, C = "a" * 16, "b" * 16, "c" * 16


class Said:
    """See Correspondence; nothing is sent."""

    def __init__(self, holder: str = A) -> None:
        self.holder = holder
        self.said: list[tuple[Any, str | None]] = []
        self.recorders: dict[type[Word], Any] = {}
        self.has_company = True

    def say(self, word: Word, *, to: str | None = None) -> None:
        """Keep it."""
        self.said.append((word, to))

    def hear(self, kind: type[Word], take: Any) -> None:
        """Remember who takes it."""
        self.recorders[kind] = take

    def arrive(self, word: Word, sender: str = B) -> None:
        """Have a word of another process taken."""
        self.recorders[type(word)](word, sender)

    def news(self) -> list[tuple[Any, str | None]]:
        """What was said since this was last asked."""
        said, self.said = self.said, []
        return said
