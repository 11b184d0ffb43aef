"""The measure of idle programs runs from start to end and says what it is asked for. No time is judged."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_run_tells_what_idle_programs_cost(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench.idle", "--programs", "2", "--seconds", "0.1", "--rounds", "1"]
    done = subprocess.run(
        [*command, "--json", str(file)], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "| the gateway, with 2 |" in done.stdout
    assert "2 idle programs add" in done.stdout
    written = json.loads(file.read_text())
    assert written["programs"] == 2
    assert {len(written[name]) for name in ("without", "gateway", "nursery", "kib")} == {1}
