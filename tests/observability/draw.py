"""`PYTHONPATH=.:tests python -m observability.draw` plays the scenario, and draws the dashboards' previews from it.

What must not live here: how a preview is drawn (`grafana.src.preview`).
"""

import asyncio
import tempfile
from pathlib import Path

from grafana.src import preview
from grafana.src.reading import dashboards

from observability.drive import Drive
from observability.reading import Archive

NOTE = "numbers of the scenario of the tests"
_ROUNDS = 5


async def draw(folder: Path) -> None:
    """Writes them into the folder of the previews; `folder` is for what is made on the way."""
    run = await Drive(folder, rounds=_ROUNDS).play()
    async with Archive(run) as archive:
        for dashboard in dashboards():
            text = await asyncio.to_thread(preview.picture, dashboard, archive.in_preview, NOTE)
            (preview.FOLDER / f"{dashboard['uid']}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(draw(Path(made)))
