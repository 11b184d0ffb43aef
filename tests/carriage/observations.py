"""What a side saw, by name: a document becomes one observation for each of its leaves, which two runs can compare."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .probe_server import CAPABILITIES, CLIENT, LEGACY, MARK, VERSION, Record

Observations = dict[str, Any]

HANDSHAKES: Final = ("initialize", "server/discover")


def flat(name: str, value: Any) -> Observations:
    """The leaves of a JSON value, by their way from its root; empty objects and arrays of no objects are leaves.

    Objects of an array go by their names where each has one, and by their places elsewhere.
    """
    return dict(_leaves(name, value))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    match value:
        case {}:
            if not value:
                yield name, {}
            for key, each in value.items():
                yield from _leaves(_below(name, key), each)
        case [*_] if any(isinstance(each, dict) for each in value):
            keys = [each.get("name") if isinstance(each, dict) else None for each in value]
            is_named = None not in keys and len(set(keys)) == len(keys)
            for place, each in enumerate(value):
                yield from _leaves(f"{name}[{keys[place] if is_named else place}]", each)
        case _:
            yield name, value


def _below(name: str, key: str) -> str:
    return f"{name}[{key}]" if "." in key or "/" in key else f"{name}.{key}"


def of_server(era: str, records: list[Record]) -> Observations:
    """What a server of that era saw, in words that are the same in both eras.

    Messages with the mark are the host's, others are what stands before the server says by itself.
    """
    greeting = next(each for each in records if each["message"].get("method") in HANDSHAKES)
    marked = [each for each in records if _mark(each) is not None and each is not greeting]
    usual = next(each["declared"] for each in marked)
    found = flat("server.declared", usual)
    found |= _of_greeting(era, greeting, marked[0])
    times: dict[str, int] = {}
    for each in marked:
        step = _mark(each) or ""
        times[step] = times.get(step, 0) + 1
        found |= _of_message(f"server.{step}" if times[step] == 1 else f"server.{step}#{times[step]}", each, usual)
    for each in records:
        message = each["message"]
        if message.get("method") == "subscriptions/listen":
            found |= flat("server.wishes", message["params"]["notifications"])
        if _mark(each) is None and each is not greeting and {"id", "method"} <= message.keys():
            # What it says under other capabilities than the host's is nothing that a row speaks of.
            kind = "own" if each["declared"] == usual else "own_with_other_capabilities"
            found[f"server.{kind}[{message['method']}]"] = True
    return found


def _of_greeting(era: str, greeting: Record, first: Record) -> Observations:
    params = greeting["message"].get("params", {})
    about = params.get("_meta", {})
    said = first["message"]["params"]["_meta"]
    rest = {key: value for key, value in params.items() if key not in _OF_GREETINGS}
    found = flat("server.welcome.params", rest) if rest else {}
    found |= flat("server.welcome._meta", _without_era(about)) if _without_era(about) else {}
    found |= flat("server.clientInfo", params.get("clientInfo") if era == LEGACY else said.get(CLIENT))
    found["server.revision"] = params.get("protocolVersion") if era == LEGACY else said.get(VERSION)
    return found


def _of_message(name: str, record: Record, usual: Mapping[str, Any]) -> Observations:
    message = record["message"]
    params = {key: value for key, value in message["params"].items() if key != "_meta"}
    about = {key: True if key == "progressToken" else value for key, value in message["params"]["_meta"].items()}
    found = {f"{name}.method": message["method"]}
    found |= flat(f"{name}.params", params) if params else {}
    found |= flat(f"{name}._meta", _without_era(about))
    found[f"{name}.declared"] = record["declared"] == usual
    for header, value in record["headers"].items():
        found[f"{name}.headers.{header}"] = True if header == "mcp-session-id" else value
    return found


def _mark(record: Record) -> str | None:
    params = record["message"].get("params")
    found = params.get("_meta", {}).get(MARK) if isinstance(params, dict) else None
    return found if isinstance(found, str) and "method" in record["message"] else None


def _without_era(about: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in about.items() if key not in (VERSION, CAPABILITIES, CLIENT)}


_OF_GREETINGS: Final = ("_meta", "protocolVersion", "capabilities", "clientInfo")
