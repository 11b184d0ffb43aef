"""Gateways that keep an audit log in a file, and what stands in it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from helpers.gateway.configuration import GatewayConfig
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.schema_judge import SchemaJudge
from helpers.waiting import eventually

SCHEMA: Final = Path(__file__).resolve().parents[2] / "config" / "audit-schema.json"
JUDGE: Final = SchemaJudge(json.loads(SCHEMA.read_text()))
REQUESTS: Final = ("rpc.call", "rpc.request", "rpc.rejected")


def audited(folder: Path, **more: Any) -> dict[str, Any]:
    """A section `audit` that has one file."""
    return {"sinks": [{"name": "file", "type": "file", "path": str(folder / "audit.jsonl")}], **more}


@asynccontextmanager
async def kept(folder: Path, config: GatewayConfig, environment: Environment | None = None) -> AsyncIterator[Gateway]:
    """A gateway whose data directory is that folder."""
    async with serve(config, environment, data_directory=folder) as gateway:
        yield gateway


def text(folder: Path) -> str:
    """All that was written."""
    return (folder / "audit.jsonl").read_text(encoding="utf-8")


def lines(folder: Path) -> list[dict[str, Any]]:
    """The same line by line, each held against the schema."""
    written: list[dict[str, Any]] = [json.loads(each) for each in text(folder).splitlines()]
    faults = [(line["event"], fault.message) for line in written if (fault := JUDGE.fault(line)) is not None]
    assert faults == []
    assert [line["seq"] for line in written] == list(range(1, len(written) + 1))
    return written


async def told_of(folder: Path, event: str, times: int = 1) -> None:
    """Wait until so many lines of an event are written."""
    await eventually(lambda: text(folder).count(f'"event":"{event}"') >= times)


def of(written: list[dict[str, Any]], *events: str) -> list[dict[str, Any]]:
    """Those of some events."""
    return [line for line in written if line["event"] in events]


def said(line: dict[str, Any]) -> tuple[str, str, str | None]:
    """What a line says in short."""
    return line["event"], line["outcome"], line["reason"]
