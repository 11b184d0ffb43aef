"""What a server's program finds in its environment: what every program needs, and what the operator names.

Nothing else of the gateway's own environment passes, which has its secrets.
"""

import re
from collections.abc import Mapping
from typing import Final

_INHERITED: Final = re.compile("PATH|HOME|USER|LANG|LC_[A-Z]+|TZ|TMPDIR")


def inherited(own: Mapping[str, str]) -> dict[str, str]:
    """Of the gateway's `own` environment, what every program may have."""
    return {name: value for name, value in own.items() if _INHERITED.fullmatch(name)}


def environment(named: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """All that a program finds: what is `named` counts more."""
    return inherited(own) | dict(named)
