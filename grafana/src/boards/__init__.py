"""The dashboards, in the order in which people read them."""

from typing import Final

from grafana.src.board import Board
from grafana.src.boards import limits, overview, runtime, security, tasks, upstreams

BOARDS: Final[tuple[Board, ...]] = (
    overview.BOARD,
    tasks.BOARD,
    security.BOARD,
    limits.BOARD,
    upstreams.BOARD,
    runtime.BOARD,
)
