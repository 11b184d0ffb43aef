"""The report of `taskgate check`: `check_configuration` collects findings, `summary` and `as_json`
show them.

`cli` is the user. The findings are in `rules`, `files` and `checks`; `online` asks other machines.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from taskgate.config import GatewayConfig, Problem
from taskgate.explain.checks import missing_programs, series_warnings
from taskgate.explain.files import check_machine
from taskgate.explain.findings import Finding, Findings
from taskgate.explain.online import Answer
from taskgate.explain.rules import check_rules
from taskgate.wiring.authentication import resource_of

_SHOWN = 3
"""Upstreams that the summary names."""


def check_configuration(
    config: GatewayConfig, environ: Mapping[str, str], *, is_running: bool, now: datetime
) -> Findings:
    """Return what keeps a gateway with this configuration from serving, and what surprises later.

    With `is_running` a gateway runs with it, so its ports and files are in use.
    """
    found = Findings(config.references.hide)
    check_machine(config, environ, found, is_running=is_running, now=now)
    check_rules(config, found)
    if config.auth.mode == "none" and not config.server.listen.is_loopback:
        found.warn("auth.mode", "is none on an address that others reach: all hosts are one caller without a token")
    for name, api_key in config.auth.api_keys.items():
        if api_key.expires is not None and api_key.expires <= now:
            found.warn(f"auth.api_keys.{name}.expires", "is in the past: the key is refused; remove the entry")
    if config.admin.payloads:
        found.warn("admin.payloads", "is true: tokens of role operator read arguments and results of all callers")
    for key, message in missing_programs(config, environ):
        found.warn(key, message)
    for text in series_warnings(config):
        found.warn("", text)
    return found


def summary(config: GatewayConfig, found: Findings, answers: Sequence[Answer] = ()) -> str:
    """Return five lines: what is served, to which callers, the store, the limits, and the result.

    One more says which proxy is in use, if one is.
    """
    store, limits = config.store, config.limits
    place = {
        "sqlite": f"sqlite, {store.sqlite.path or 'taskgate.db in the data directory'}",
        "redis": f"redis, {store.redis.url or 'by sentinels'}",
        "memory": "memory: everything is lost at the end",
    }[store.backend]
    sinks = ", ".join(sink.name for sink in config.audit.sinks) if config.audit.enabled else "off"
    rates = ", ".join(policy.name for policy in limits.rate) or "no rates"
    caps = limits.concurrency
    proxies = config.references.hide(", ".join(config.to_egress().lines()))
    total = "any number" if caps.tasks_global is None else caps.tasks_global
    return "".join(
        f"{name + ':':<9}{text}\n"
        for name, text in (
            ("serves", "; ".join(_upstreams(config))),
            ("callers", config.references.hide(_callers(config))),
            ("store", config.references.hide(f"{place}; audit log: {sinks}")),
            ("limits", f"{rates}; tasks: {caps.tasks_per_context} of one caller, {total} of all"),
            *((("proxy", proxies),) if proxies else ()),
            ("result", _result(found, answers)),
        )
    )


def _result(found: Findings, answers: Sequence[Answer]) -> str:
    failed = sum(answer.passed is False for answer in answers)
    parts = [f"{failed} of {len(answers)} FAILED"] if failed else []
    parts += [counted(found.warnings, "warning")] if found.warnings else []
    not_asked = sum(answer.passed is None for answer in answers)
    rest = [f"{not_asked} of {len(answers)} not asked"] if not_asked else []
    return ", ".join([*(parts or ["no problems"]), *rest])


def counted(found: Iterable[object], name: str) -> str:
    """Return a number with its noun, such as `2 warnings`."""
    number = len(list(found))
    return f"{number} {name}{'' if number == 1 else 's'}"


def _upstreams(config: GatewayConfig) -> list[str]:
    names = [f"{name} at {_address(config, name)}" for name in config.upstreams]
    more = len(names) - _SHOWN
    return names if more <= 0 else [*names[:_SHOWN], f"and {more} more"]


def _address(config: GatewayConfig, name: str) -> str:
    return resource_of(config, config.server.listen.port, config.upstreams[name].path)


def _callers(config: GatewayConfig) -> str:
    if config.auth.mode == "none":
        return "anonymous: all hosts are one caller"
    issuers = ", ".join(f"{name} ({section.issuer})" for name, section in config.auth.issuers.items())
    keys = ", ".join(f"{name} ({section.subject})" for name, section in config.auth.api_keys.items())
    found = (f"tokens of {issuers}" if issuers else "", f"API keys {keys}" if keys else "")
    return "; ".join(filter(None, found))


def as_json(config: GatewayConfig, found: Findings, answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the report as JSON members: `errors` and `warnings`, each with `key` and `message`.

    `online` has the answers of other machines, with `passed` beside these. `result` is `invalid`
    with an error, `failed` if another machine failed, else `ok`.
    """
    has_failed = any(answer.passed is False for answer in answers)
    return {
        "result": "invalid" if found.errors else "failed" if has_failed else "ok",
        "upstreams": {name: _address(config, name) for name in config.upstreams},
        "issuers": list(config.auth.issuers),
        "api_keys": list(config.auth.api_keys),
        "store": config.store.backend,
        "proxies": config.to_egress().lines(),
        "rates": [policy.name for policy in config.limits.rate],
        "errors": [_finding(each) for each in found.errors],
        "warnings": [_finding(each) for each in found.warnings],
        "online": [each._asdict() for each in answers],
    }


def problems_as_json(problems: Iterable[Problem]) -> dict[str, Any]:
    """Return the problems of a file that cannot be loaded, as `as_json` returns its errors."""
    errors = [{"key": each.path, "message": each.message, "file": each.file, "line": each.line} for each in problems]
    return {"result": "invalid", "errors": errors, "warnings": []}


def _finding(found: Finding) -> dict[str, str]:
    return {"key": found.key, "message": found.message}
