"""Configurations of gateways: sections as a file has them, laid over what is usual in tests."""

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from taskgate.config import GatewayConfig, load
from taskgate.stores.base import Store
from taskgate.stores.open import SqliteOptions, open_store

__all__ = ["GatewayConfig", "configuration", "file_store", "load", "write_configuration", "written"]


def configuration(servers: Mapping[str, str], *, folder: Path | None = None, **sections: Any) -> GatewayConfig:
    """A configuration for servers by name, on free ports; in memory unless a folder is given.

    Sections are written as in files, and laid over what is here. A server is spoken to in 2025-11-25, as the scripted
    one wants to be, and is asked nothing of the gateway's own accord, unless its own section says otherwise. Nobody is
    too fast unless `limits` has rates, which are then the only ones. Every host is told to ask for its tasks every two
    seconds, and may ask much more often.
    """
    store = {"backend": "memory"}
    if folder is not None:
        store = {"backend": "sqlite", "sqlite": {"path": str(folder / "taskgate.db")}}
    written = {
        "version": 1,
        "auth": {"mode": "none"},
        "server": {"listen": "127.0.0.1:0", "drain": {"delay": "0s", "timeout": "2s"}},
        "admin": {"listen": "127.0.0.1:0"},
        "upstreams": {name: {"path": f"/{name}/mcp", "url": url} for name, url in servers.items()},
        "tasks": {"poll_interval": {"adaptive": False, "jitter": 0}, "early_poll": {"reject_above": 1000}},
        "limits": {"rate": []},
        "store": store,
    }
    for name, section in sections.items():
        present = written.get(name)
        written[name] = {**present, **section} if isinstance(present, dict) else section
    if "replace_defaults" in getattr(GatewayConfig.model_fields["limits"].annotation, "model_fields", {}):
        # An earlier package that a test plays has no such key: rates replace the built-in ones there.
        written["limits"] = {"replace_defaults": True, **written["limits"]}
    usual = {"protocol_version": "2025-11-25", "health": None}
    written["upstreams"] = {name: usual | section for name, section in written["upstreams"].items()}
    return GatewayConfig.model_validate(written)


async def file_store(folder: Path, **more: Any) -> Store:
    """The store of `configuration(folder=…)`, for a wrapper of it that is handed in, or for a look into it."""
    path, second = folder / "taskgate.db", timedelta(seconds=1)
    options = SqliteOptions(path=path, synchronous="FULL", busy_timeout=second, max_size=2**30)
    return await open_store("sqlite", options, **more)


def written(config: GatewayConfig) -> dict[str, Any]:
    """A configuration as its file has it."""
    return config.model_dump(mode="json")


def write_configuration(folder: Path, url: str, **sections: Any) -> Path:
    """A file for one server at /reports/mcp, on free ports, its store in the folder.

    `sections` are further ones, or others: the text that a file has, or what that means. By itself it limits no rates,
    and asks servers nothing of the gateway's own accord.
    """
    file = folder / "taskgate.yaml"
    written = {
        "version": "1",
        "auth": "{mode: none}",
        "server": '{listen: "127.0.0.1:0", drain: {delay: 0s, timeout: 5s}}',
        "admin": '{listen: "127.0.0.1:0"}',
        "upstreams": f'{{reports: {{path: /reports/mcp, url: "{url}", health: null}}}}',
        "limits": "{rate: []}",
        "store": f'{{sqlite: {{path: "{folder}/taskgate.db"}}}}',
        **sections,
    }
    texts = {name: each if isinstance(each, str) else json.dumps(each) for name, each in written.items()}
    file.write_text("".join(f"{name}: {text}\n" for name, text in texts.items()))
    return file
