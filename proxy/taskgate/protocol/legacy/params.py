"""Reading the parameters of a host's messages in the legacy era: types checked, the host's text kept.

Everything of the wrong type is InvalidParams. What belongs to the gateway (`task`, the progress token,
the related-task key, the idempotency key) is cut out of the text; every other byte stays.
"""

from datetime import timedelta
from typing import Final, NamedTuple

from taskgate.domain.record import RequestId
from taskgate.errors import InvalidParams
from taskgate.jsontext.edits import removals, splice_range
from taskgate.jsontext.spans import Members, RawJson
from taskgate.protocol.jsonrpc import is_id
from taskgate.protocol.messages import Params, Request, required_string, value_of
from taskgate.protocol.meta import OWN_PREFIX
from taskgate.protocol.vocabulary import RELATED_TASK

MAX_TTL: Final = timedelta(days=36_500)
"""Anything longer is as good as this, and no overflow."""


class TaskWish(NamedTuple):
    """The host's `task` member: it wants a task, for that long."""

    ttl: timedelta | None


class PreparedParams(NamedTuple):
    """Parameters made ready to leave, and the host's own progress token."""

    params: Params
    token: RequestId | None


def cursor_of(params: Members) -> str | None:
    """Where a page is to begin; an empty text is a cursor too, though none of ours."""
    if "cursor" not in params:
        return None
    return required_string(params, "cursor", "The cursor")


def task_wish(params: Members) -> TaskWish | None:
    """Whether the host asks for a task, and the TTL it would like; null and absent leave that to us."""
    member = params.get("task")
    if member is None:
        return None
    if member.members is None:
        raise InvalidParams("task must be an object")
    ttl = value_of(member.members, "ttl")
    if ttl is None:
        return TaskWish(None)
    if not isinstance(ttl, int) or isinstance(ttl, bool) or ttl < 0:
        raise InvalidParams("task.ttl must be a whole number of milliseconds, zero or more")
    return TaskWish(MAX_TTL if ttl > MAX_TTL // _MILLISECOND else timedelta(milliseconds=ttl))


def passage(request: Request) -> PreparedParams | None:
    """The parameters of a request, made ready for a server; None where it has none."""
    if not request.params_text:
        return None
    meta = _meta(request.params)
    token = meta.get("progressToken")
    cuts = _cuts(request.params, meta, _NOT_PASSED)
    begin, end = request.params_at, request.params_at + len(request.params_text)
    if token is None:
        return PreparedParams(
            Params(splice_range(request.text, begin, end, cuts) if cuts else request.params_text), None
        )
    if not is_id(token.value):
        raise InvalidParams("The progress token must be a string or an integer")
    head, tail = splice_range(request.text, begin, token.start, cuts), splice_range(request.text, token.end, end, cuts)
    return PreparedParams(Params(head, tail), token.value)


def kept(request: Request) -> RawJson:
    """The parameters of a request as a record keeps them: without any progress token. To be asked after `passage`."""
    cuts = _cuts(request.params, _meta(request.params), _NOT_KEPT)
    return splice_range(request.text, request.params_at, request.params_at + len(request.params_text), cuts)


def _meta(params: Members) -> Members:
    meta = params.get("_meta")
    if meta is None:
        return {}
    if meta.members is None:
        raise InvalidParams("_meta must be an object")
    return meta.members


def _cuts(params: Members, meta: Members, names: tuple[str, ...]) -> list[tuple[int, int, str]]:
    """The edits that take out `task`, the named members of `_meta` and those that begin as ours do.

    Places are those of the whole message.
    """
    cuts = removals(params, ("task",)) if "task" in params else []
    gone = set(names)
    for name in meta:
        if name.startswith(OWN_PREFIX):
            gone.add(name)
    return cuts + removals(meta, gone) if not meta.keys().isdisjoint(gone) else cuts


_NOT_PASSED: Final = (RELATED_TASK,)
_NOT_KEPT: Final = (*_NOT_PASSED, "progressToken")
_MILLISECOND = timedelta(milliseconds=1)
