"""The last line of `make test`: how many tests were skipped, for want of what, and what brings that.

`python tests/house/skipped.py FILE` reads the counts that `helpers/skips.py` wrote.
"""

import re
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.skips import counts

_HINT = re.compile(r" ?\(?(?:on )?Debian: apt-get install (?:--no-install-recommends )?([\w. -]+)\)?", re.IGNORECASE)


def closing_line(skipped: Counter[str]) -> str:
    """That line."""
    if not skipped:
        return "No test was skipped."
    packages = {name: None for reason in skipped for hint in _HINT.findall(reason) for name in hint.split()}
    reasons = Counter[str]()
    for reason, count in skipped.items():
        reasons[_HINT.sub("", reason)] += count
    wants = "; ".join(f"{count}: {reason}" for reason, count in reasons.most_common())
    command = f" To install what Debian has: make test SYSTEM=1 ({', '.join(packages)})" if packages else ""
    return f"{skipped.total()} skipped: {wants}.{command}"


if __name__ == "__main__":
    sys.stdout.write(f"{closing_line(counts(Path(sys.argv[1])))}\n")
