"""The keys of `_meta` that carry a trace: read from a host's request, and written anew for its server.

They are the same in both eras (SEP-414). Pure; what a trace is, and whether a host is believed, is decided elsewhere.
"""

from typing import NamedTuple

from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import Members, RawJson, members, skip_space
from taskgate.protocol.amending import ObjectEdit, edits_of, written
from taskgate.protocol.params import Params
from taskgate.protocol.reading import cut, meta_of, value_of
from taskgate.protocol.vocabulary import BAGGAGE, TRACEPARENT, TRACESTATE


class TraceKeys(NamedTuple):
    """A place in a trace and what vendors say of it, as they are written; whether they can be read is not judged."""

    traceparent: str
    tracestate: str | None = None


def trace_keys(params: Members) -> TraceKeys | None:
    """Those of a request with these parameters; None where it has none, or some that are no strings."""
    meta = meta_of(params)
    place, state = value_of(meta, TRACEPARENT), value_of(meta, TRACESTATE)
    if not isinstance(place, str):
        return None
    return TraceKeys(place, state if isinstance(state, str) else None)


def with_trace(params: Params | None, keys: TraceKeys) -> Params:
    """The parameters with these keys instead of the sender's, and without its baggage.

    Whatever else there is stays to the byte; so does all of what is no object, or repeats a key.
    """
    put = {TRACEPARENT: dump(keys.traceparent)}
    if keys.tracestate is not None:
        put[TRACESTATE] = dump(keys.tracestate)
    if params is None:
        return Params(f'{{"_meta":{{{written(put)}}}}}')
    if not params.head.startswith("{"):
        return params
    if params.tail is None and '"_meta"' not in params.head and "\\u" not in params.head:
        # However a key of it is written, none is `_meta`: it has not to be walked.
        return Params(_with_last(params.head, f'"_meta":{{{written(put)}}}'))
    try:
        return _amended(params, put)
    except MalformedMessage:
        # Better not traced than refused for what its server may well read.
        return params


def _with_last(text: RawJson, member: str) -> RawJson:
    """An object with one more member at its end: what looks for the first one finds what it did before."""
    end = len(text) - 1
    comma = "" if skip_space(text, 1) == end else ","
    return f"{text[:end]}{comma}{member}}}"


def _amended(params: Params, put: dict[str, RawJson]) -> Params:
    # A token of one letter, so that the place of the sender's is known in the text.
    text = params.with_token(0)
    change = ObjectEdit(meta_put=put, meta_drop=(TRACESTATE, BAGGAGE), keeps_hop=True)
    edits = edits_of(members(text, {"_meta": {}}), 0, change)
    if params.tail is None:
        return Params(cut(text, 0, len(text), edits))
    open_at = len(params.head)
    return Params(cut(text, 0, open_at, edits), cut(text, open_at + 1, len(text), edits))
