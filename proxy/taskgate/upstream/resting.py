"""A call between two rounds, of which its server holds nothing: what a process goes on with that took it over.

Values only; who keeps what a round takes is the engine's matter.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from taskgate.dialects.questions import Answer, Question
from taskgate.mcp.jsonrpc import RawJson

Leave = Callable[[], Awaitable[bool]]
"""To be awaited right before the next round of a call leaves; False where it is not to leave any more."""


class NextRound(NamedTuple):
    """The round that a call goes on with: the state that the server wants back, as written, and answers by its keys.

    None stands for an answer that nobody gave. `leave` is to be awaited once there is nothing left to wait for. No
    server of the initialize era is told any of it: it has no rounds.
    """

    state: RawJson | None
    answers: Mapping[str, tuple[Question, Answer | None]]
    leave: Leave
