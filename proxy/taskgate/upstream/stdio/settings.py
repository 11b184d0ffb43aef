"""What a server is made with that is a program of this machine: how it is started, how many of it there may be.

Values only. Where they come from is the configuration's business.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioSettings:
    """A server that is spoken to over the standard streams of a process.

    `command` is the program and its arguments, never given to a shell. It finds in its environment what every program
    needs (see `environment`) and `env`, whose values are secret; it runs in `cwd`, None for the gateway's own
    directory. At most `processes` of it run at once. One that no session holds is ended after `idle`. After one that
    ended soon after its start another is not started before `backoff`, which doubles up to `max_backoff` each time.
    `shared` tells that the server keeps nothing of whom it serves, so that all who declare the same share them.
    """

    command: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = None
    processes: int = 8
    idle: timedelta = timedelta(seconds=60)
    backoff: timedelta = timedelta(seconds=1)
    max_backoff: timedelta = timedelta(seconds=60)
    shared: bool = False
