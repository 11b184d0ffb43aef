"""The command taskgate on a machine whose time of day is wrong: `wrong_clock.py FILE serve …`.

The file says by how many seconds it is ahead; to change it, put another file in its place.
"""

import sys
from datetime import datetime, timedelta
from pathlib import Path

from taskgate.cli import main
from taskgate.clock import SystemClock

_right = SystemClock.now
_ahead = Path(sys.argv.pop(1))


def _wrong(self: SystemClock) -> datetime:
    return _right() + timedelta(seconds=float(_ahead.read_text()))


SystemClock.now = _wrong  # type: ignore[method-assign]
main()
