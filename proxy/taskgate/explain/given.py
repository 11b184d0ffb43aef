"""What the question of an operator holds: a token in a file, and what a server would list of a tool.

What must not live here: whether the token is good.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, get_args

from taskgate.auth.bearer import MAX_TOKEN
from taskgate.config.sections.tasks import Hint
from taskgate.domain.policy import APP_ONLY

HINTS: Final = (*get_args(Hint), APP_ONLY)
_FLAGS: Final = {"true": True, "false": False}


def read_hints(given: Iterable[str]) -> dict[str, bool]:
    """Hints that are written `readOnlyHint=true`. Raises ValueError, with words for whoever wrote them."""
    found: dict[str, bool] = {}
    for each in given:
        name, _, value = each.partition("=")
        if name not in HINTS or value not in _FLAGS:
            raise ValueError(f"--hint must be NAME=true or NAME=false, where NAME is one of {', '.join(HINTS)}")
        found[name] = _FLAGS[value]
    return found


def read_token(file: Path | None) -> str | None:
    """The token in a file, without the line ends around it; None without a file. Raises ValueError."""
    if file is None:
        return None
    try:
        with file.open("rb") as opened:
            return opened.read(2 * MAX_TOKEN).decode("ascii").strip()
    except OSError as error:
        raise ValueError(f"--token: {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"--token: {file} does not hold a token") from None
