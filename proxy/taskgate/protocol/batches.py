"""JSON-RPC arrays, which one revision has: cut into their elements, each of which is then judged by itself.

Knows nothing of what an element should be.
"""

from typing import Final

from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.spans import PARSE_ERRORS, decode, end_of_value, skip_space

MAX_ELEMENTS: Final = 64


def is_array(body: bytes) -> bool:
    """Whether a body, if it is JSON, is an array."""
    return body[:1] == b"[" or (body[:1].isspace() and body.lstrip(b" \t\r\n")[:1] == b"[")


def split(body: bytes, *, max_depth: int, most: int = MAX_ELEMENTS, counted: bool = False) -> list[bytes]:
    """The elements of the array that a body is, as they are written; at most so many. `counted` is as in `decode`.

    Raises UnparsableMessage for what is no JSON, and MalformedMessage for no array, an empty one, or too large a one.
    """
    text = decode(body, max_depth, counted=counted)
    try:
        found = _elements(text, most)
    except PARSE_ERRORS:
        raise UnparsableMessage("The body is not JSON") from None
    if not found:
        raise MalformedMessage("A batch must not be empty")
    return [element.encode("utf-8", "surrogatepass") for element in found]


def _elements(text: str, most: int) -> list[str]:
    at = skip_space(text, 0)
    if text[at] != "[":
        raise ValueError
    found: list[str] = []
    at = skip_space(text, at + 1)
    if text[at] != "]":
        while True:
            end = end_of_value(text, at)
            found.append(text[at:end])
            if len(found) > most:
                # The rest is not worth the time: it is refused whatever it is.
                raise MalformedMessage(f"A batch must not have more than {most} elements")
            at = skip_space(text, end)
            if text[at] == "]":
                break
            if text[at] != ",":
                raise ValueError
            at = skip_space(text, at + 1)
    if skip_space(text, at + 1) != len(text):
        raise ValueError
    return found
