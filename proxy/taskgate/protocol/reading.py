"""Reading parameters of hosts in either era: types checked, and the text cut where something in it is not for a server.

Everything of the wrong type is InvalidParams. What must not live here: what belongs to one era alone.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from taskgate.domain.record import TaskId
from taskgate.errors import InvalidParams, MalformedMessage, TaskNotFound
from taskgate.jsontext.edits import splice
from taskgate.jsontext.spans import Member, Members, RawJson

TASK_ID: Final = r"[A-Za-z0-9_-]{32}"
"""What an id of ours looks like, as a regular expression."""
MAX_TOOL_NAME: Final = 128
MAX_CAPABILITIES: Final = 16 * 1024
"""Letters of what a host may declare: sessions keep it, as a tree of up to 25 times its size."""
MAX_WORD: Final = 512
"""Letters that are kept of the name and the version of a host."""

Edits = list[tuple[int, int, str]]


def value_of(members: Members, name: str) -> Any:
    """A member's value; None where there is none."""
    member = members.get(name)
    return None if member is None else member.value


def meta_of(members: Members) -> Members:
    """The members of an object's `_meta`; none where it has none, or one that is no object."""
    meta = members.get("_meta")
    return (meta.members or {}) if meta else {}


def text_member(params: Members, name: str, what: str) -> str:
    """A required string."""
    value = value_of(params, name)
    if not isinstance(value, str):
        raise InvalidParams(f"{what} must be a string")
    return value


def written_member(params: Members, name: str, what: str) -> str:
    """A required string that will be written elsewhere: MalformedMessage for a lone surrogate."""
    value = text_member(params, name, what)
    try:
        value.encode()
    except UnicodeEncodeError:
        # No encoding could write it.
        raise MalformedMessage(f"{what} is not valid Unicode") from None
    return value


def tool_name(params: Members) -> str:
    """The name of the tool to call; bounded, because it is kept and compared.

    Raises InvalidParams, and MalformedMessage for a lone surrogate.
    """
    name = written_member(params, "name", "The tool's name")
    if len(name) > MAX_TOOL_NAME:
        raise InvalidParams(f"The tool's name is longer than {MAX_TOOL_NAME} characters")
    arguments = params.get("arguments")
    if arguments is not None and not arguments.is_object:
        raise InvalidParams("The arguments must be an object")
    return name


def task_id(params: Members) -> TaskId:
    """The task a request is about. What can be no id of ours is the same TaskNotFound as an unknown one (T24)."""
    value = value_of(params, "taskId")
    if not is_task_id(value):
        raise TaskNotFound
    return str(value)


def check_capabilities(declared: Member | None) -> None:
    """Raises InvalidParams for capabilities that are too large to be kept with a session."""
    if declared is not None and declared.end - declared.start > MAX_CAPABILITIES:
        raise InvalidParams(f"The capabilities are longer than {MAX_CAPABILITIES} characters")


def kept_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of what a host says it is: its name and version. The rest may be large, and serves nothing here."""
    words = {name: info[name] for name in _WORDS if isinstance(info.get(name), str)}
    return {name: word[:MAX_WORD] for name, word in words.items()}


def is_task_id(value: object) -> bool:
    """Whether this could be an id of ours."""
    return isinstance(value, str) and _TASK_ID.fullmatch(value) is not None


def cut(text: str, begin: int, end: int, edits: Edits) -> RawJson:
    """The text between two places with those edits that lie there."""
    if len(edits) == 1 and begin <= edits[0][0] and edits[0][1] <= end:
        # As nearly always.
        start, stop, by = edits[0]
        return f"{text[begin:start]}{by}{text[stop:end]}"
    inside = [(start - begin, stop - begin, by) for start, stop, by in edits if begin <= start and stop <= end]
    return splice(text[begin:end], inside) if inside else text[begin:end]


_TASK_ID: Final = re.compile(TASK_ID)
_WORDS: Final = ("name", "version")
