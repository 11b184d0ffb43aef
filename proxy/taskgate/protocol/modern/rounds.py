"""Rounds of a server of this era that go to a host of this era as they are, and requests that are sent again.

What the server wants handed back crosses the gateway sealed (`domain/states.py`), all else to the byte. Pure.
"""

from hashlib import sha256
from typing import Any

from taskgate.domain.record import RequestId
from taskgate.domain.request_state import MAX_PASS_THROUGH
from taskgate.domain.versions import Peer
from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import Edits, dump, removals, splice
from taskgate.jsontext.spans import (
    MAX_MEMBERS,
    Member,
    Members,
    RawJson,
    Shape,
    first_keys,
    members,
    read_pairs,
    skip_space,
)
from taskgate.protocol.dialects import Round
from taskgate.protocol.extensions import merge_capabilities
from taskgate.protocol.host_requests import LONG, CallTool, Relay, Retry, sorted_members
from taskgate.protocol.messages import Params, Response, meta_of, value_of
from taskgate.protocol.meta import OWN_PREFIX, ObjectEdit, edits_for
from taskgate.protocol.modern.declared import DECIDE, lacking
from taskgate.protocol.modern.server_rounds import MAX_QUESTIONS
from taskgate.protocol.vocabulary import RELATED_TASK, SERVER_INFO, TOOLS_CALL


def round_of(response: Response) -> Round | None:
    """What a server of this era asks for before it answers; None for any other answer, and for a round without sense.

    Such a one asks for nothing, or for what is no map of requests, or gives a state that is no text or too long a one.
    """
    found = (response.result.members or {}) if response.result is not None else {}
    if "resultType" not in found or found["resultType"].value != "input_required":
        return None
    asked = _asked(response.text, found.get("inputRequests"))
    if asked is None:
        return None
    given = value_of(found, "requestState")
    if given is None:
        return Round(None) if asked else None
    state = _text(given)
    return None if state is None else Round(state)


def lacking_for(response: Response, host: Peer) -> dict[str, Any]:
    """What `host` would have to declare besides to be asked all of a round (M-MRTR-2); nothing where it can be."""
    found = (response.result.members or {}) if response.result is not None else {}
    missing: dict[str, Any] = {}
    for asked in _asked(response.text, found.get("inputRequests")) or ():
        said = _members(asked)
        params = said.get("params")
        inner = {} if params is None else _members(asked[params.start : params.end])
        told = {name: inner[name].value for name in DECIDE if name in inner}
        missing = merge_capabilities(missing, lacking(host, value_of(said, "method"), told))
    return missing


def passed_round(id: RequestId, response: Response, state: str | None, info: RawJson | None) -> str:
    """A round under the host's id, with our `state` as the one to hand back; None takes the server's out.

    `info` is told instead of what the server says that it is; None leaves that as it is.
    """
    assert response.result is not None, "a round is a result"
    put = {} if state is None else {"requestState": dump(state)}
    meta_put = {} if info is None else {SERVER_INFO: info}
    change = ObjectEdit(put=put, drop=("requestState",), meta_put=meta_put, keeps_hop=True)
    found = response.result.members or {}
    edits = edits_for(found, response.result.start, change)
    edits += _without_foreign_keys(response.text, found.get("inputRequests"))
    return splice(response.text, [(*response.id_span, dump(id)), *edits])


def _without_foreign_keys(text: str, requests: Member | None) -> Edits:
    """The edits that take keys of `_meta` out of questions that do not cross; nearly always none."""
    if requests is None or not any(key in text for key in (RELATED_TASK, OWN_PREFIX)):
        return []
    shape: Shape = {name: {"params": {"_meta": {}}} for name in first_keys(requests, MAX_QUESTIONS) or ()}
    start = requests.start
    edits: Edits = []
    for asked in members(text[start : requests.end], shape).values():
        params = (asked.members or {}).get("params")
        meta = meta_of(params.members or {}) if params is not None else {}
        gone = {name for name in meta if name == RELATED_TASK or name.startswith(OWN_PREFIX)}
        edits += [(start + begin, start + end, by) for begin, end, by in removals(meta, gone)]
    return edits


def again(retry: Retry, state: str | None) -> CallTool | Relay:
    """The request with the host's answers as it wrote them, and with `state` for its server to have back."""
    params = retry.request.params or Params("{}")
    put = [] if retry.responses is None else [f'"inputResponses":{retry.responses}']
    put += [] if state is None else [f'"requestState":{dump(state)}']
    at = params.head.index("{") + 1
    if params.tail is not None or params.head[skip_space(params.head, at)] != "}":
        put.append("")
    return retry.request._replace(params=Params(f"{params.head[:at]}{','.join(put)}{params.head[at:]}", params.tail))


def digest(request: CallTool | Relay) -> str:
    """What two sendings of the same request have in common: a hexadecimal SHA-256.

    It makes no difference how they are written, unless they are long, as in `call_digest`. `_meta` is nothing to it.
    """
    method = TOOLS_CALL if isinstance(request, CallTool) else request.method
    params = (request.params or Params("{}")).with_token(0)
    texts = {name: params[at.start : at.end] for name, at in members(params).items() if name != "_meta"}
    if sum(map(len, texts.values())) > LONG:
        sizes = sorted((name, len(text)) for name, text in texts.items())
        found = sha256(ascii((method, "long", sizes)).encode())
        for name, _ in sizes:
            found.update(texts[name].encode("utf-8", "surrogatepass"))
        return found.hexdigest()
    said = sorted_members(f"{{{','.join(f'{dump(name)}:{text}' for name, text in texts.items())}}}")
    return sha256(ascii((method, said)).encode()).hexdigest()


def _asked(text: str, requests: Member | None) -> list[RawJson] | None:
    """The requests of a round one by one; None for what is no map of objects, or has too many, or too large ones."""
    if requests is None:
        return []
    keys = first_keys(requests, MAX_QUESTIONS + 1)
    if keys is None or len(keys) > MAX_QUESTIONS:
        return None
    written = text[requests.start : requests.end]
    found = _members(written).values()
    if not all(each.is_object for each in found):
        return None
    asked = [written[each.start : each.end] for each in found]
    return None if len(written) > LONG and _are_too_large(asked) else asked


def _are_too_large(asked: list[RawJson]) -> bool:
    """Whether so many members are in the requests and their parameters that to look at them takes too long."""
    left = MAX_MEMBERS
    for text in asked:
        try:
            said = dict(read_pairs(text))
            params = said.get("params")
            left -= len(said) + (0 if params is None else len(read_pairs(text[params.start : params.end])))
        except MalformedMessage:
            return True
        if left < 0:
            return True
    return False


def _members(text: RawJson) -> Members:
    """The members of an object, of those that stand twice the last."""
    return dict(read_pairs(text))


def _text(state: object) -> str | None:
    """A string of bounded length that can be written again; None for anything else."""
    try:
        return state if isinstance(state, str) and len(state.encode()) <= MAX_PASS_THROUGH else None
    except UnicodeEncodeError:
        return None
