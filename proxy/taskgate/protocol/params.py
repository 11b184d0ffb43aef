"""Parameters on their way across the gateway: a text with, at most, one place that is ours to fill."""

from typing import NamedTuple

from taskgate.domain.record import RequestId
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import RawJson


class Params(NamedTuple):
    """The sender's text, open at the place of its progress token if it has one."""

    head: RawJson
    tail: RawJson | None = None

    def with_token(self, token: RequestId) -> RawJson:
        """The text with our token in the place of the sender's; as it is where there is none."""
        if self.tail is None:
            return self.head
        return f"{self.head}{token if isinstance(token, int) else dump(token)}{self.tail}"

    @property
    def size(self) -> int:
        """Characters, without any token."""
        return len(self.head) + len(self.tail or "")
