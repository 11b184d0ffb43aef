"""Large JSON texts that stay the bytes they are stored as: `LargeJson`, and `Pieces`, what is sent of one.

As a string a text takes up to four times its bytes, and each splice takes a copy. So a large text is amended by what
stands around and between views of its bytes, and it leaves in windows.
"""

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Final

from taskgate.jsontext.depth import WINDOW
from taskgate.jsontext.places import read_places
from taskgate.jsontext.spans import Members, RawJson, Shape

_META: Final[Shape] = {"_meta": {}}


class LargeJson:
    """The bytes of one JSON object, of which no part is read but keys. Two of the same bytes are equal."""

    __slots__ = ("_members", "body")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self._members: Members | None = None

    def __len__(self) -> int:
        """Its size in bytes."""
        return len(self.body)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LargeJson) and self.body == other.body

    __hash__ = None  # type: ignore[assignment]

    @property
    def members(self) -> Members:
        """The members of the object, and those of its `_meta`. The first look takes long, further ones do not.

        Raises ValueError where the bytes are no object, and MalformedMessage where that has a key twice or too many.
        """
        if self._members is None:
            self._members = read_places(self.body, _META)
        return self._members

    def text(self) -> RawJson:
        """All of it as a string: for what is so rare that it may take the memory."""
        return self.body.decode()

    def spliced(self, edits: Sequence[tuple[int, int, str]]) -> "Pieces":
        """The text with each `(start, end, replacement)` applied, as with `splice`; places are counted in bytes."""
        view, pieces, at = memoryview(self.body), list[bytes | memoryview](), 0
        for start, end, replacement in sorted(edits):
            assert start >= at, "two edits overlap"
            pieces += (view[at:start], replacement.encode())
            at = end
        return Pieces([*pieces, view[at:]])


class Pieces:
    """A JSON text as the bytes that follow one another in it."""

    __slots__ = ("_pieces", "_size")

    def __init__(self, pieces: Sequence[bytes | memoryview]) -> None:
        self._pieces = pieces
        self._size = sum(map(len, pieces))

    def __len__(self) -> int:
        """Its size in bytes."""
        return self._size

    def within(self, head: str, tail: str) -> "Pieces":
        """The same with a text before it and one after it."""
        return Pieces([head.encode(), *self._pieces, tail.encode()])

    def windows(self) -> Iterator[bytes | memoryview]:
        """The bytes in their order, in windows that are all of one size but the last. Most are no copies."""
        parts, size = list[bytes | memoryview](), 0
        for piece in self._pieces:
            at = 0
            while at < len(piece):
                parts.append(piece[at : at + WINDOW - size])
                at, size = at + len(parts[-1]), size + len(parts[-1])
                if size == WINDOW:
                    yield b"".join(parts) if len(parts) > 1 else parts[0]
                    parts, size = [], 0
        if parts:
            yield b"".join(parts)

    def encode(self) -> bytes:
        """All bytes in one, as of a string."""
        return b"".join(self._pieces)

    def line(self, head: bytes, tail: bytes) -> bytes:
        """All bytes in one line between two others: a break between two tokens becomes a space."""
        # Its buffer is handed out as it is: what is written in windows is there once.
        written = BytesIO()
        written.write(head)
        for window in self.windows():
            written.write(bytes(window).translate(_BREAKS))
        written.write(tail)
        return written.getvalue()


MessageText = RawJson | Pieces
"""The text of a message that is sent."""


def joined(text: MessageText) -> RawJson:
    """The text as a string, whatever it takes."""
    return text if isinstance(text, str) else text.encode().decode()


def around(head: str, text: MessageText, tail: str) -> MessageText:
    """The same with a text before it and one after it."""
    return text.within(head, tail) if isinstance(text, Pieces) else f"{head}{text}{tail}"


_BREAKS: Final = bytes.maketrans(b"\r\n", b"  ")
