"""Environment of a server's program: `environment`, basic and configured variables.

The gateway's other variables are not passed, since they hold its secrets. Used by `starting` and
for the supervisor process.
"""

import re
from collections.abc import Mapping
from typing import Final

_INHERITED: Final = re.compile("PATH|HOME|USER|LANG|LC_[A-Z]+|TZ|TMPDIR")


def inherited(own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the gateway's `own` environment that every program may have."""
    return {name: value for name, value in own.items() if _INHERITED.fullmatch(name)}


def environment(named: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program; `named` variables override inherited ones."""
    return inherited(own) | dict(named)
