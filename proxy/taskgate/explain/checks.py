"""Checks beyond the file: key files, certificates and programs as a start would find them, and the
number of series of its metrics.

`taskgate check` and `taskgate metrics` use it. The arithmetic of series is in
`telemetry.metrics.catalogue`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from taskgate.clock import SystemEntropy
from taskgate.config import GatewayConfig
from taskgate.config.model import metrics_config
from taskgate.listener.tls import made_context
from taskgate.telemetry.metrics import catalogue
from taskgate.telemetry.metrics.catalogue import PARTS
from taskgate.telemetry.metrics.families import Family
from taskgate.telemetry.metrics.settings import MetricsConfig
from taskgate.upstream.wire.trust import TlsFileRefused, tls_context
from taskgate.wiring.authentication import deployment_keys, operator_tokens
from taskgate.wiring.observability import expect_keys

_PACKAGES: Final = {"npx": "Node.js", "npm": "Node.js", "node": "Node.js", "uvx": "uv", "uv": "uv"}
"""The packages that install well-known programs."""


def expect_key_files(config: GatewayConfig) -> None:
    """Read each file with keys or certificates, and make none.

    Raises KeyFileRefused, TlsRefused or TlsFileRefused with the message that `taskgate serve` has.
    """
    expect_keys(config)
    if config.auth.context.key_file is not None:
        deployment_keys(config, None, SystemEntropy())
    operator_tokens(config)
    tls = config.server.tls.to_settings()
    if tls is not None:
        made_context(tls)
    for name, section in config.upstreams.items():
        if section.url is not None and section.url.lower().startswith("https:"):
            try:
                tls_context(section.tls.to_settings())
            except TlsFileRefused as refused:
                raise TlsFileRefused(f"upstreams.{name}.{refused}") from None


def missing_programs(config: GatewayConfig, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Find programs and working folders that a start on this machine would not find.

    Yields the dotted path of a key and what is wrong with it. This is a warning: programs come and
    go, and the configuration may be for another machine.
    """
    for name, section in config.upstreams.items():
        if section.command is None:
            continue
        if section.cwd is not None and not section.cwd.is_dir():
            yield f"upstreams.{name}.cwd", f"{section.cwd} is no folder of this machine"
            continue
        path = section.env.get("PATH", environ.get("PATH", os.defpath))
        program, cwd = section.command[0], section.cwd or Path()
        if not _is_there(program, cwd, path, os.F_OK):
            package = f", which {_PACKAGES[program]} brings" if program in _PACKAGES else ""
            yield f"upstreams.{name}.command", f"there is no program {program} on this machine{package}"
        elif not _is_there(program, cwd, path, os.F_OK | os.X_OK):
            yield f"upstreams.{name}.command", f"the program {program} is there, but may not be executed"


def _is_there(program: str, cwd: Path, path: str, mode: int) -> bool:
    # A name with a slash is a path relative to the working folder of the program.
    return shutil.which(cwd / program if os.sep in program else program, mode, path) is not None


_EXAMPLE: Final = MetricsConfig(
    backend="sqlite", upstreams={"one": "one"}, issuers=("one",), policies=("one",), sinks=("file", "stdout")
)
"""The assumed configuration where none is given."""


def series_warnings(config: GatewayConfig) -> tuple[str, ...]:
    """Return the warnings of `check`: one where there can be very many series."""
    if not config.metrics.enabled or (most := catalogue.series_bound(metrics_config(config))) <= catalogue.MANY_SERIES:
        return ()
    ways = "fewer metrics.buckets, a smaller metrics.max_tools, or metrics.tool_histograms off"
    return (f"metrics may have up to {most} series, more than {catalogue.MANY_SERIES}: {ways} make it less",)


def metrics_text(config: GatewayConfig | None) -> str:
    """Return every family of metrics with its largest number of series, and their sum.

    Without a configuration the numbers are for one upstream, one issuer and one rate policy.
    """
    configured = _EXAMPLE if config is None else metrics_config(config)
    lines = [line for part, families in PARTS.items() for line in _part(part, families, configured)]
    return "\n".join([*lines, *_total(configured, config is None)]) + "\n"


def _part(part: str, families: tuple[Family, ...], configured: MetricsConfig) -> Iterator[str]:
    yield f"# {part}"
    for family in families:
        names = ",".join(label.name for label in family.labels)
        shown = f"{family.name}{{{names}}}" if names else family.name
        yield f"{catalogue.most_series(family, configured):>6}  {family.kind:<9}  {shown}"
        yield f"{'':>6}  {'':<9}    {family.meaning}"
    yield ""


def _total(configured: MetricsConfig, is_example: bool) -> Iterator[str]:
    of = "one upstream, one issuer and one rate policy" if is_example else "this configuration"
    yield f"{catalogue.STANDARD_SERIES:>6}  process_*, python_*"
    yield f"{catalogue.series_bound(configured):>6}  series at most, with {of}"
    if not configured.settings.enabled:
        yield "        metrics.enabled is false: nothing is counted or shown"
