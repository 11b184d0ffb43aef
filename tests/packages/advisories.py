"""Whether an advisory is known for a release that the image's lock names: `make advisories`.

pip-audit asks the package index. It passes over what the index does not answer for, so the answers are counted here.
"""

import json
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).resolve().parents[2] / "deploy" / "locks" / "image.txt"
TOOL = (sys.executable, "-m", "uv", "tool", "run", "--quiet", "--from", "pip-audit>=2.10,<3", "pip-audit")
OPTIONS = ("--require-hashes", "--disable-pip", "--progress-spinner=off", "--format=json", "--requirement")
CLEAN, VULNERABLE, UNKNOWN = 0, 1, 3


def verdict(report: str) -> tuple[int, list[str]]:
    """The exit status for a report of pip-audit, and what to print. Without any answer it is UNKNOWN."""
    try:
        found = json.loads(report)["dependencies"]
    except (ValueError, KeyError):
        return UNKNOWN, ["advisories: the data could not be reached, so nothing was checked"]
    answered = [each for each in found if "vulns" in each]
    lines = [
        f"{each['name']} {each['version']}: {hole['id']}, fixed in {', '.join(hole['fix_versions']) or 'no release'}"
        for each in answered
        for hole in each["vulns"]
    ]
    if not answered:
        return UNKNOWN, ["advisories: the data could not be reached, so nothing was checked"]
    unchecked = [each["name"] for each in found if each not in answered]
    lines.append(f"advisories: {len(lines)} known, {len(answered)} releases checked")
    if unchecked:
        lines.append(f"advisories: no data for {', '.join(unchecked)}")
    status = VULNERABLE if any(each["vulns"] for each in answered) else UNKNOWN if unchecked else CLEAN
    return status, lines


def main() -> int:
    """Run pip-audit on the lock, and print what it found."""
    ended = subprocess.run([*TOOL, *OPTIONS, LOCK], stdout=subprocess.PIPE, text=True, timeout=300, check=False)
    status, lines = verdict(ended.stdout)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
