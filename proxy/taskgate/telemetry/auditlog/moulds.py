"""Lines of requests like others before: what is the same in them is written once, and what differs is filled in.

Nearly every line is of a request like one before it, with the same words of its host in the same places. A mould is
made of the document of the first of them (`native`), with holes: so a line says what its document would, and what that
is stands there alone. What must not live here: what a line says, and how it is tied to others.
"""

from datetime import UTC
from typing import Any, Final

import orjson

from taskgate.mcp.jsonrpc import Request
from taskgate.telemetry.auditlog.actors import actor
from taskgate.telemetry.auditlog.events import Asked, Event, asked_in
from taskgate.telemetry.auditlog.native import Native, plain
from taskgate.telemetry.auditlog.texts import heard
from taskgate.telemetry.visit import Identity, Visit

MOST: Final = 512
"""How many moulds are kept, and how many actors: when there are more, all are let go of."""


class Moulds:
    """Writes lines that are, byte for byte, the canonical form of what `native` makes of an event. For one thread."""

    def __init__(self, native: Native) -> None:
        self._native = native
        self._moulds: dict[tuple[object, ...], bytes] = {}
        self._actors: dict[str, tuple[Identity | None, bytes]] = {}

    def line(self, event: Event, seq: int, prev: bytes) -> bytes | None:
        """The line of that number; `prev` is the JSON text of what it is tied to. None for an event that is not usual.

        Usual is the end of a request that came alone, was let in, and has neither a span nor much to be shown in full.
        """
        visit, data = event.origin, event.data
        if type(visit) is not Visit or data is None or visit.span is not None or visit.parts:
            return None
        message, time = visit.message, event.time
        if type(message) is not Request or "seconds" not in data or time.tzinfo is not UTC or not time.microsecond:
            return None
        asked, native = asked_in(visit), self._native
        place, task = asked.arguments, visit.task or asked.task
        result = data.get("result") if native.shows_results else None
        if place is not None and not native.only_digests:
            return None
        mould = self._mould_for(event, visit, asked, result is None)
        # In the order of the keys of the line, which are sorted.
        filling: list[Any] = [self._actor_of(event, visit)]
        if place is not None:
            filling += native.digested(place)
        if result is not None:
            filling.append(result["bytes"])
        asked_as = orjson.dumps(heard(str(message.id)))
        filling += orjson.dumps(plain(data["seconds"])), orjson.dumps(visit.id), asked_as, prev, seq
        if task is not None:
            filling.append(native.task_ref(task).encode())
        filling.append(orjson.dumps(time, option=orjson.OPT_UTC_Z))
        return mould % tuple(filling)

    def _mould_for(self, event: Event, visit: Visit, asked: Asked, is_bare: bool) -> bytes:
        place = asked.arguments
        key = (
            event.name, event.outcome, event.reason, visit.address, visit.verb, visit.path, visit.agent, visit.status,
            visit.mount, visit.revision, visit.client, asked.method, asked.tool, place is None or place.keys,
            visit.task is None and asked.task is None, is_bare,
        )  # fmt: skip
        mould = self._moulds.get(key)
        if mould is None:
            if len(self._moulds) >= MOST:
                self._moulds.clear()
            mould = self._moulds[key] = _mould(self._native.document(event))
        return mould

    def _actor_of(self, event: Event, visit: Visit) -> bytes:
        caller = visit.caller
        if caller is None:
            return b"null"
        known = self._actors.get(caller.key)
        if known is None or known[0] is not caller.identity:
            if len(self._actors) >= MOST:
                self._actors.clear()
            told = actor(event, full=self._native.names_callers)
            known = caller.identity, orjson.dumps(told, option=orjson.OPT_SORT_KEYS)
            self._actors[caller.key] = known
        return known[1]


def _mould(document: dict[str, Any]) -> bytes:
    """The text of a document with a `%` sign for whatever is another in each line; other such signs are doubled."""
    document |= {"actor": _TEXT, "prev": _TEXT, "seq": _NUMBER, "time": _TEXT}
    document["data"]["seconds"] = document["http"]["request_id"] = document["mcp"]["request_id"] = _TEXT
    if "result" in document["data"]:
        # Another dictionary: the one that is there is the event's.
        document["data"]["result"] = {**document["data"]["result"], "bytes": _NUMBER}
    if document["args"] is not None:
        document["args"] |= {"bytes": _NUMBER, "hmac": _QUOTED}
    if document["task"] is not None:
        document["task"]["ref"] = _QUOTED
    text = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    return text.replace(b"%", b"%%").replace(b"\0", b"%")


# No other byte of JSON is 0.
_TEXT: Final = orjson.Fragment(b"\0b")
_QUOTED: Final = orjson.Fragment(b'"\0b"')
_NUMBER: Final = orjson.Fragment(b"\0d")
