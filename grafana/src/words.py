"""Words for the codes in legends: JSON-RPC errors and HTTP statuses."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

CODES: Final[Mapping[str, Mapping[str, str]]] = {
    "error_type": {
        "-32700": "no JSON",
        "-32600": "invalid request",
        "-32601": "unknown method",
        "-32602": "invalid parameters",
        "-32603": "no answer of the server",
        "-32000": "error of the server",
        "-32001": "error of the server",
        "-32002": "unknown resource",
        "-32020": "headers contradict the body",
        "-32021": "missing capability",
        "-32022": "unsupported revision",
        "-32042": "needs a visit to a URL",
        "-32800": "cancelled",
        "403": "refused by a rule",
        "429": "limit",
        "503": "store, shutdown or memory",
    },
    "http_response_status_code": {
        "200": "answered",
        "202": "accepted",
        "204": "no content",
        "400": "malformed",
        "401": "no valid token",
        "403": "not allowed",
        "404": "unknown path or session",
        "405": "wrong method",
        "406": "not acceptable",
        "408": "too slow",
        "413": "body too large",
        "414": "URL too long",
        "415": "wrong media type",
        "421": "wrong host name",
        "429": "limit",
        "431": "head too large",
        "500": "error of the gateway",
        "501": "not implemented",
        "503": "store, shutdown or memory",
        "505": "wrong HTTP version",
    },
}


class Rename(NamedTuple):
    """A transformation of Grafana: series whose name the pattern finds get another name."""

    pattern: str
    name: str


def renames(legend: str) -> Iterator[Rename]:
    """What adds words to the codes in the names of a legend's series. The code is the last part of a name."""
    for label, words in CODES.items():
        if legend.endswith(f"{{{{{label}}}}}"):
            for code, text in words.items():
                yield Rename(f"^((?:.* )?{code})$", f"$1 {text}")
