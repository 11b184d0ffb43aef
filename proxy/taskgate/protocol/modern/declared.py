"""What servers of this era may ask of a host through the gateway: told with each request, held against questions. Pure.

Both sides read it here, so that no server is promised what no host is asked. What is no object where an object belongs
counts as not declared.
"""

from collections.abc import Mapping
from typing import Any, Final

from taskgate.domain.versions import Peer, Revision
from taskgate.jsontext.spans import members
from taskgate.protocol import vocabulary as words
from taskgate.protocol.server_messages import Question

_PARTS: Final = {"roots": (), "sampling": ("tools", "context"), "elicitation": ("form", "url")}
_BEFORE_ELICITATION: Final = frozenset({Revision.R2024_11_05, Revision.R2025_03_26})
_WITHOUT_PARTS: Final = _BEFORE_ELICITATION | {Revision.R2025_06_18}


def declared(host: Peer | None) -> dict[str, dict[str, Any]]:
    """What a server is told of a host of either era, as far as its revision has it (B-CONV-5).

    Never an extension: those that cross are the policy's (`extensions`), tasks are told where they are followed.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, parts in _PARTS.items():
        said = None if host is None else host.capabilities.get(name)
        if host is None or not isinstance(said, dict):
            continue
        if name == "elicitation" and host.revision in _BEFORE_ELICITATION:
            continue
        known = () if host.revision in _WITHOUT_PARTS else parts
        found[name] = {part: {} for part in known if isinstance(said.get(part), dict)}
    if found.get("elicitation") == {}:
        # Nothing said of modes is what hosts said before there were two.
        found["elicitation"] = {"form": {}}
    return found


def takes(host: Peer | None, question: Question) -> bool:
    """Whether the host can be asked that, by what its server was told (M-MRTR-2).

    `question` is one of those that servers of this era may ask, and repeats no key.
    """
    asked = members("" if question.params is None else question.params.head)
    return not lacking(host, question.method, {name: member.value for name, member in asked.items()})


def lacking(host: Peer | None, method: object, params: Mapping[str, Any]) -> dict[str, Any]:
    """What the host would have to declare besides to be asked that, as it is declared; nothing where it can be.

    Nothing, too, of what no host can be asked.
    """
    found = declared(host)
    match method:
        case words.ROOTS_LIST if "roots" not in found:
            return {"roots": {}}
        case words.SAMPLING_CREATE:
            parts: dict[str, Any] = (
                {"tools": {}} if any(params.get(name) is not None for name in ("tools", "toolChoice")) else {}
            )
            is_known = "sampling" in found and parts.keys() <= found["sampling"].keys()
            return {} if is_known else {"sampling": parts}
        case words.ELICITATION_CREATE:
            mode = params.get("mode", "form")
            is_known = isinstance(mode, str) and mode in found.get("elicitation", {})
            return {} if is_known else {"elicitation": {mode: {}} if mode in _MODES else {}}
    return {}


DECIDE: Final = frozenset({"mode", "tools", "toolChoice"})
"""The parameters that `lacking` looks at."""
_MODES: Final = ["form", "url"]
