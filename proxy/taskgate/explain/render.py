"""Text of an explanation for people: a line for each value, with the key that it comes from."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from taskgate.auth.claims import API_KEYS

_REFUSALS: Final = {
    "jsonrpc": "an error of JSON-RPC under HTTP 200",
    "http": "an error of JSON-RPC under HTTP 429",
    "tool_error": "a result with isError for tools/call, else an error of JSON-RPC under HTTP 200",
}
_RATES: Final = {
    "before_auth": "Rates before it is known who calls",
    "tools/call": "Rates of tools/call",
    "tasks/get": "Rates of tasks/get",
    "auth_failure": "Rates of refused tokens",
    "lookup_failure": "Rates of tasks that were not found",
    "large_body": "Rates of KiB of bodies above 256 KiB",
}
_PROMOTION: Final = {
    "mode": "mode",
    "announce": "announced",
    "inline_grace": "inline grace",
    "ttl": "time to live",
    "ttl_min": "at least",
    "ttl_max": "at most",
    "ttl_keep": "kept after the end",
    "deadline": "deadline",
    "cap": "cap of the tool",
    "on_lost": "when lost",
    "join_retries": "retries join for",
    "handoff": "handed off after",
    "handoff_ceiling": "ceiling",
    "handoff_retry_window": "equal calls join",
}
_HANDOFF_ONLY: Final = frozenset({"handoff_ceiling", "handoff_retry_window"})
_AUTO_ONLY: Final = frozenset({"inline_grace"})
_WITHOUT_EFFECT: Final = {"auto": frozenset[str](), "sync": _PROMOTION.keys() - {"mode", "join_retries", "announce"}}
"""Values that have no effect in a mode; in other modes those are `_AUTO_ONLY`."""
_CAPS: Final = {
    "tasks_per_context": "of the caller",
    "tasks_per_subject": "of the subject",
    "tasks_per_tenant": "of the tenant",
    "tasks_per_tool": "of the tool",
    "tasks_per_upstream": "of the upstream",
    "tasks_global": "of all",
    "kept_per_context": "kept of the caller",
    "kept_per_subject": "kept of subject",
    "kept_global": "kept of all",
}
_POLLS: Final = {"grace": "wait up to age", "interval": "advised every", "reject_above": "refused above"}
_LOOKUPS: Final = {"threshold": "passed over", "window": "within", "penalty": "then none for"}
_SERVER: Final = {
    "concurrency": "at once",
    "calls_per_context": "while others wait",
    "queue.size": "that may wait",
    "queue.max_wait": "for",
    "timeouts.connect": "to connect",
    "timeouts.first_byte": "to greet",
    "processes": "processes",
    "sessions": "their sessions",
    "timeouts.idle": "silent for",
    "timeouts.call": "without progress",
    "timeouts.ceiling": "altogether",
    "circuit_breaker": "failures",
    "circuit_breaker.failures": "failures",
    "circuit_breaker.window": "within",
    "circuit_breaker.open_for": "then none for",
}

_OUTCOMES: Final = {"denied": "denied", "own": "the gateway's own"}
_EXTENSION_LISTS: Final = {
    "methods": "methods",
    "notifications": "notifications",
    "filters": "members of filters",
    "result_types": "types of results",
    "cacheable": "cacheable",
}


def render(explanation: Mapping[str, Any]) -> str:
    """Return the text, in the order in which the rules apply to a call."""
    # A name of a server or a token with a line break in it stays in its line.
    return "".join(f"{' '.join(line.splitlines())}\n" for line in _lines(explanation))


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    call = found["call"]
    yield f"Caller: {_caller(found['caller'])}"
    yield f"Call: {call['tool']} of {call['upstream']} at {call['path']}"
    if "reserved" in call:
        text = "No server gets it: that is a tool of the gateway"
        yield f"{text}  {_source(call['reserved'])}"
    if call["hints"]:
        yield f"Annotations: {_hints(call['hints'])}"
    yield from _authorization(found["authorization"])
    for key, heading in _RATES.items():
        yield from _block(heading, [_rate(each) for each in found["rates"][key]])
    yield from _promotion(found["promotion"])
    yield from _block("Unfinished tasks", [_row(_CAPS[cap["key"]], cap) for cap in found["caps"]])
    yield from _block(
        "Open at once, of the caller", [_row(key.replace("_", " "), each) for key, each in found["open"].items()]
    )
    yield from _block(
        "Polls of a task", [_row(_POLLS[key], _as_factor(key, each)) for key, each in found["polls"].items()]
    )
    lookups = [_row(_LOOKUPS[key], each) for key, each in found["lookups"].items()]
    yield from _block("Failed look-ups of tasks by the caller", lookups)
    yield from _block("Calls of the server", [_row(_SERVER[key], each) for key, each in found["server"].items()])
    yield from _extensions(found["extensions"])
    refusals = found["refusals"]
    yield from _block("A limit is told as", [f"{_REFUSALS[refusals['value']]}  {_source(refusals)}"])


def _block(heading: str, lines: list[str]) -> Iterator[str]:
    """A heading after an empty line, with indented lines, or "none" if there are none."""
    yield ""
    yield heading
    yield from (f"  {line}" for line in lines or ["none"])


def _caller(caller: Mapping[str, Any]) -> str:
    if caller["anonymous"]:
        words = ["anonymous: auth.mode is none, so all hosts are one caller"]
    else:
        source = "the API keys" if caller["issuer"] == API_KEYS else f"the issuer {caller['issuer']}"
        words = [f"{caller['subject']} of {source}"]
        words += [f"{key} {caller[key]}" for key in ("client", "tenant") if caller[key] is not None]
        words.append(f"scopes {' '.join(caller['scopes']) or 'none'}")
    if caller["override"] is not None:
        words.append(f"limits of {caller['override']}")
    return ", ".join(words)


def _authorization(found: Mapping[str, Any]) -> Iterator[str]:
    lacking = f", for want of the scopes {' '.join(found['missing_scopes'])}" if found["missing_scopes"] else ""
    verdict = "allowed" if found["allowed"] else f"refused{lacking}"
    named = f" ({found['name']})" if found["name"] and not found["from"].endswith(found["name"]) else ""
    shadow = [
        f"would be refused by {each['rule']}, which is in shadow"
        + (f", for want of the scopes {' '.join(each['missing_scopes'])}" if each["missing_scopes"] else "")
        for each in found["shadow"]
    ]
    listed = found["only_listed_tools"]
    unlisted = (
        [f"refused if the server does not list the tool  {_source(listed)}"]
        if found["allowed"] and listed["value"]
        else []
    )
    yield from _block("Authorization", [f"{verdict}  {_source(found)}{named}", *unlisted, *shadow])


def _promotion(found: Mapping[str, Any]) -> Iterator[str]:
    mode = found["mode"]["value"]
    # Under a handoff no time is set within which retries join: equal calls of hosts without tasks do, or none.
    others = {"join_retries"} if found.keys() >= _HANDOFF_ONLY else _HANDOFF_ONLY
    hidden = _WITHOUT_EFFECT.get(mode, _AUTO_ONLY) | others
    lines = [_row(name, _handoff_words(key, found[key])) for key, name in _PROMOTION.items() if key not in hidden]
    if found["rule"] is None:
        lines = [f"sync: no rule is for this tool, so it is never a task  {_source(found['mode'])}"]
    lines += [f"{each['rule']} would decide, but is in shadow: mode {each['mode']}" for each in found["shadow"]]
    for each in found["hints_wanted"]:
        shadow = ", but is in shadow" if each["shadow"] else ""
        wanted = _hints(each["hints"])
        lines.append(f"{each['rule']} would decide if the server lists {wanted}{shadow}: mode {each['mode']}")
    yield from _block("Promotion", lines)


def _handoff_words(key: str, each: Mapping[str, Any]) -> Mapping[str, Any]:
    """The value in words if it is one of handoff alone."""
    if key == "handoff_ceiling" and each["from"] == "tasks.handoff.ceiling":
        return {**each, "value": f"{each['value']}, or that of the host's name"}
    if key == "handoff_retry_window":
        return {**each, "value": "never" if each["value"] is None else f"until {each['value']} after their end"}
    return each


def _extensions(found: Mapping[str, Any]) -> Iterator[str]:
    lines = []
    for name, each in found["each"].items():
        lines.append(f"{name}: {_verdict(each)}  {_source(each)}")
        lines += [f"  {_EXTENSION_LISTS[key]}: {', '.join(each[key])}" for key in _EXTENSION_LISTS if each[key]]
    default = found["default"]
    others = "denied" if default["value"] == "deny" else "crosses within each era, without methods"
    yield from _block("Extensions", [*lines, f"every other: {others}  {_source(default)}"])
    declared = found["declared"]
    if declared is not None:
        lines = [f"{name}: {_declared(each)}" for name, each in declared["each"].items()]
        lines += [f"and {declared['left_out']} more"] if declared["left_out"] else []
        yield from _block(f"Extensions that the server declares, in {declared['revision']}", lines)


def _verdict(each: Mapping[str, Any]) -> str:
    if each["becomes"] != "crosses":
        return _OUTCOMES[each["becomes"]]
    between = {host: servers for host, servers in each["servers_by_host"].items() if servers}
    if all(servers == [host] for host, servers in between.items()):
        return "crosses within each era" if len(between) > 1 else f"crosses within the {next(iter(between))} era"
    return "crosses between all eras"


def _declared(each: Mapping[str, Any]) -> str:
    if each["becomes"] != "crosses":
        return _OUTCOMES[each["becomes"]]
    return "crosses to hosts of both eras" if len(each["hosts"]) > 1 else f"crosses to {each['hosts'][0]} hosts alone"


def _rate(rate: Mapping[str, Any]) -> str:
    cost = f", cost {rate['cost']}" if rate["cost"] > 1 else ""
    shadow = ", in shadow" if rate["shadow"] else ""
    wait = f", wait {rate['wait']}" if rate["wait"] else ""
    extra = f"{wait}{cost}{shadow}"
    return f"{rate['policy']}: {rate['rate']} by {rate['scope']}, burst {rate['burst']}{extra}  {_source(rate)}"


def _row(name: str, each: Mapping[str, Any]) -> str:
    """One line for a value with its source."""
    value = "none" if each["value"] is None else each["value"]
    return f"{name + ':':<20}{value}  {_source(each)}"


def _as_factor(key: str, each: Mapping[str, Any]) -> Mapping[str, Any]:
    """The value in words if it is a factor and no duration."""
    return {**each, "value": f"{each['value']:g} times as often"} if key == "reject_above" else each


def _source(each: Mapping[str, Any]) -> str:
    """The key that a value comes from, in brackets, and whether the value is its default."""
    return f"[{each['from']}{', by default' if each['default'] else ''}]"


def _hints(hints: Mapping[str, bool]) -> str:
    return ", ".join(f"{name}: {'true' if value else 'false'}" for name, value in hints.items())
