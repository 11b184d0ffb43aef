"""Values from references such as `${NAME}`: `References` says how they are shown.

The value of a reference may be a secret, whichever key it is in. `shown` has the text of each scalar
with references, with a mask in place of each value. `hide` masks the values in other texts, such as
errors and log lines, which may quote a path or the name of a program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from taskgate.config.fields import MASK
from taskgate.config.file_watch import FileStamp
from taskgate.config.problems import Location

SHORTEST: Final = 8
"""Characters of a value that `hide` masks. A shorter one may be part of any word."""
_PUBLIC: Final = frozenset({("server", "listen"), ("server", "public_url"), ("admin", "listen")})
"""Keys whose values hosts and operators connect to, so that they are named in texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The scalars with references by location, and the values in them.

    `shown` has no value of a reference. `values` has those that `hide` masks. `files` are those that
    references name, each with its stamp from before it was read.
    """

    shown: Mapping[Location, str] = field(default_factory=dict)
    values: frozenset[str] = field(default=frozenset(), repr=False)
    files: Mapping[Path, FileStamp] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls,
        shown: Mapping[Location, str],
        values: Mapping[Location, tuple[str, ...]],
        files: Mapping[Path, FileStamp],
    ) -> References:
        """Return the references of a file. `values` has the value of each reference by location."""
        hidden = (value for where, found in values.items() if where not in _PUBLIC for value in found)
        return cls(shown=shown, values=frozenset(value for value in hidden if len(value) >= SHORTEST), files=files)

    def hide(self, text: str) -> str:
        """Mask each value in a text."""
        if not self.values:
            return text
        # A value may begin another one, which must then be masked as a whole.
        longest_first = sorted(self.values, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, longest_first)), MASK, text)

    def mixed(self, before: References, is_of_before: Callable[[Location], bool]) -> References:
        """Return these references, with those of `before` at the locations that stay as they were."""
        shown = {where: text for where, text in self.shown.items() if not is_of_before(where)}
        shown |= {where: text for where, text in before.shown.items() if is_of_before(where)}
        return References(shown=shown, values=self.values | before.values, files=self.files)


NO_REFERENCES: Final = References()
