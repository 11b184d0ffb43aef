"""What a server's last word on a `tools/call` means for a task, whatever the server's era. Pure."""

from typing import Any, Final

from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.record import FaultReason
from taskgate.errors import MalformedMessage, UpstreamFailed, UpstreamReason
from taskgate.jsontext.spans import Member, RawJson, elements
from taskgate.protocol.envelope import Response
from taskgate.protocol.reading import value_of

MAX_SUMMARY: Final = 1_000
"""How many characters of an error's text become a status message."""
MOST_BLOCKS: Final = 256
"""Blocks of content with very many parts that are looked at for that text."""


def outcome(response: Response) -> CallSucceeded | CallFaulted:
    """What the response means; UpstreamFailed, reason malformed, where it is no tool result."""
    if response.error is not None:
        error = response.text[response.error.start : response.error.end]
        told = summary(value_of(response.error.members or {}, "message"))
        return CallFaulted(error=error, reason=FaultReason.JSONRPC_ERROR, message=told)
    assert response.result is not None, "a response without an error has a result"
    found = response.result.members
    if found is None or ("task" in found and "content" not in found):
        # Where a task of the server's own was asked for, what came of it is looked at, not its handle.
        raise UpstreamFailed(
            UpstreamReason.MALFORMED, "The server broke the protocol: its answer is no tool result", dispatched=True
        )
    failed = value_of(found, "isError") is True
    text = response.text[response.result.start : response.result.end]
    return CallSucceeded(
        result=text, tool_error=failed, message=_error_text(response.text, found.get("content")) if failed else None
    )


def summary(text: str) -> str:
    """A text of a server as a status message: bounded, and fit to be written as UTF-8."""
    cut = text if len(text) <= MAX_SUMMARY else f"{text[: MAX_SUMMARY - 1]}…"
    return cut.encode("utf-8", "replace").decode()


def _error_text(text: RawJson, content: Member | None) -> str:
    told = [] if content is None or not content.is_array else _texts_of(text, content)
    texts = [each for each in told if isinstance(each, str)]
    return summary("\n".join(texts)) if texts else "The tool reported an error"


def _texts_of(text: RawJson, content: Member) -> list[Any]:
    blocks = content.value
    if isinstance(blocks, list):
        return [block.get("text") for block in blocks if isinstance(block, dict)]
    # Very many parts, but these may be commas in one long text.
    try:
        found = elements(text[content.start : content.end], {}, MOST_BLOCKS)
    except MalformedMessage:
        return []
    return [value_of(block.members or {}, "text") for block in found]
