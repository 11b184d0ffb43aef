"""`python -m grafana.src.story`: plays the stories, and draws the previews from what Prometheus has of them."""

import argparse
import asyncio
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from grafana.src import preview
from grafana.src.axes import Mark
from grafana.src.reading import dashboards
from grafana.src.story.archive import Moments, archived
from grafana.src.story.traffic import Incident, Traffic

DAY: Final = datetime(2026, 10, 14, tzinfo=UTC).timestamp()
HEALTHY_DAY: Final = "healthy-day.svg"
NOTE_OF_THE_HOUR: Final = "numbers of a story: an hour of a Wednesday, times in UTC"
NOTE_OF_THE_DAY: Final = "numbers of a story: a healthy Wednesday, times in UTC"
_HOUR: Final = 3600.0
_WARM: Final = 2.25 * _HOUR
_HISTORY: Final = {
    "up": 1.0,
    "job:taskgate_calls:rate5m": 0.9,
    "job:taskgate_call_errors:rate5m": 0.0003,
    "job:taskgate_task_ends:rate5m": 0.45,
    "job:taskgate_task_failures:rate5m": 0.0017,
}
_INCIDENT: Final = Incident(upstream="reports", begin=DAY + 13.4 * _HOUR, end=DAY + 13.6 * _HOUR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What is played, and what is shown of it: `seconds` up to `moments.end`, rates over `window`."""

    traffic: Traffic
    moments: Moments
    seconds: float
    window: str
    note: str
    marks: Sequence[Mark] = ()


def hour() -> Story:
    """An hour of normal traffic, in which one server is down for twelve minutes; a new configuration comes later."""
    moments = Moments(begin=DAY + 13 * _HOUR - _WARM, end=DAY + 14 * _HOUR, every=15, history=_HISTORY)
    traffic = Traffic(moments.begin, seed=7, incident=_INCIDENT, day=lambda _: 1.0)
    traffic.reload(DAY + 13.8 * _HOUR)
    down = Mark(_INCIDENT.begin, _INCIDENT.end, f"incident: {_INCIDENT.upstream} is down", "#e02f44")
    return Story(traffic=traffic, moments=moments, seconds=_HOUR, window="2m", note=NOTE_OF_THE_HOUR, marks=[down])


def day() -> Story:
    """A day on which nothing goes wrong, busy while people work."""

    def busy(moment: float) -> float:
        return 0.15 + 0.85 * math.exp(-((((moment - DAY) / _HOUR - 13) / 4.2) ** 2))

    moments = Moments(begin=DAY - _HOUR, end=DAY + 24 * _HOUR, every=60, history=_HISTORY)
    traffic = Traffic(moments.begin, seed=11, incident=None, day=busy)
    return Story(traffic=traffic, moments=moments, seconds=24 * _HOUR, window="20m", note=NOTE_OF_THE_DAY)


async def pictures(story: Story, shown: Sequence[dict[str, Any]], folder: Path) -> list[str]:
    """The previews of some dashboards. `folder` is for what is made on the way."""
    pages = story.traffic.pages(story.moments.every, story.moments.end)
    async with archived(folder, pages, story.moments) as address:
        asked = preview.Prometheus(
            url=f"http://{address}", end=story.moments.end, seconds=story.seconds, window=story.window
        )
        return [await asyncio.to_thread(preview.picture, each, asked, story.note, story.marks) for each in shown]


async def _draw(into: Path) -> None:
    every = dashboards()
    with tempfile.TemporaryDirectory() as made:
        for dashboard, text in zip(every, await pictures(hour(), every, Path(made)), strict=True):
            (into / f"{dashboard['uid']}.svg").write_text(text, encoding="utf-8")
    [overview] = [each for each in every if each["uid"] == "taskgate-overview"]
    with tempfile.TemporaryDirectory() as made:
        [text] = await pictures(day(), [overview], Path(made))
        (into / HEALTHY_DAY).write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw them all."""
    parser = argparse.ArgumentParser(prog="python -m grafana.src.story", description=__doc__)
    parser.add_argument("--into", type=Path, default=preview.FOLDER, help="the folder of the pictures")
    asyncio.run(_draw(parser.parse_args(arguments).into))


if __name__ == "__main__":
    main()
