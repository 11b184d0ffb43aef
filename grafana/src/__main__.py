"""`python -m grafana.src`: writes the dashboards, each into a file of its own under `grafana/dashboards/`."""

import json
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana.src.board import Board, build
from grafana.src.boards import BOARDS

FOLDER: Final = Path(__file__).parents[1] / "dashboards"


def written(board: Board) -> str:
    """The text of a dashboard's file. The same board gives the same text.

    What the SDK writes of the oldest Grafana it is for, and newer ones do not know, is left out.
    """
    dashboard = json.loads(json.dumps(build(board), cls=JSONEncoder))
    del dashboard["style"]
    for variable in dashboard["templating"]["list"]:
        del variable["id"]
    return json.dumps(dashboard, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main(folder: Path = FOLDER) -> None:
    """Write them all."""
    for board in BOARDS:
        (folder / f"{board.uid}.json").write_text(written(board), encoding="utf-8")


if __name__ == "__main__":
    main()
