"""Paths of audit sinks that other files of the gateway have: `expect_free_paths` refuses them.

A start and the command that checks a configuration call it. It compares names and reads no file:
a path whose file holds something else is refused where the sink is opened.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from taskgate.config import GatewayConfig
from taskgate.telemetry.auditlog.settings import AuditUnavailable

LOG_FILE: Final = "audit.jsonl"
_BESIDE: Final = re.compile(r"\.(head|torn|next|unreadable|[0-9]{12})(-[0-9]+)?")
"""What follows the name of a log in the names of files that its sink writes."""
_STORE_SUFFIXES: Final = ("", ".lock", "-wal", "-shm", "-journal")


def sink_reasons(config: GatewayConfig, data_directory: Path | None, own: tuple[str, ...]) -> dict[str, str]:
    """Return by the name of a sink why its path cannot be used; {} if all can.

    `own` are names of files in the data directory that the gateway writes.
    """
    taken = {path.resolve(): what for path, what in _own_files(config, data_directory, own)}
    found: dict[str, str] = {}
    logs: list[Path] = []
    for sink in config.audit.sinks if config.audit.enabled else ():
        named = sink.path or (None if data_directory is None else data_directory / LOG_FILE)
        if sink.type != "file" or named is None:
            continue
        path = named.resolve()
        if (what := taken.get(path)) is not None:
            found[sink.name] = f"{named} is {what}: name another file"
        elif path in logs:
            found[sink.name] = "is the file of another sink"
        elif any(_is_beside(path, other) or _is_beside(other, path) for other in logs):
            found[sink.name] = f"{named} meets a file that another sink has beside its own: name another file"
        logs.append(path)
    return found


def expect_free_paths(config: GatewayConfig, data_directory: Path | None, own: tuple[str, ...]) -> None:
    """Raise AuditUnavailable for the first sink that `sink_reasons` names."""
    for name, reason in sink_reasons(config, data_directory, own).items():
        raise AuditUnavailable(f"audit.sinks ({name}): {reason}")


def _own_files(config: GatewayConfig, data_directory: Path | None, own: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    store = config.store.sqlite
    if config.store.backend == "sqlite" and (store.path or data_directory):
        path = store.to_options(data_directory).path
        yield from ((path.with_name(path.name + suffix), "a file of the task store") for suffix in _STORE_SUFFIXES)
    if data_directory is not None:
        yield from ((data_directory / name, "a key file of the gateway") for name in own)
    for key in (config.auth.context.key_file, config.audit.hmac_key_file, config.audit.chain.sign_key_file):
        if key is not None:
            yield key, "a key file of the gateway"


def _is_beside(path: Path, log: Path) -> bool:
    """Return whether a path has a name of a file that the sink of `log` writes beside it."""
    rest = path.name.removeprefix(log.name)
    return path.parent == log.parent and rest != path.name and _BESIDE.fullmatch(rest) is not None
