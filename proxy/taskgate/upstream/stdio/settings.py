"""Settings of a server that is a program on this machine: `StdioSettings`. Values only.

Built by `config`; used by `pool` and `starting`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioSettings:
    """A server that is spoken to over the standard streams of a process.

    - `command` is the program and its arguments; no shell is involved.
    - `env` is added to the basic environment (see `environment`); its values are secret.
    - `cwd` is its directory, None for the gateway's own.
    - `processes` is how many run at most. A program that no session holds is ended after `idle`.
    - `backoff` is the delay after a program that ended soon after its start; it doubles up to
      `max_backoff`.
    - `shared`: the server keeps no state of callers, so all with the same declaration share
      programs.
    """

    command: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = None
    processes: int = 8
    idle: timedelta = timedelta(seconds=60)
    backoff: timedelta = timedelta(seconds=1)
    max_backoff: timedelta = timedelta(seconds=60)
    shared: bool = False
