"""A page of series as a scraper wants it, written in small pieces.

What must not live here: which series there are. What holds: between two pieces, which take about a millisecond each,
whoever shares the interpreter with the writing can be given a turn.
"""

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

Rest = Callable[[], None]
"""Called between two pieces."""

PIECE: Final = 100
"""Series in a piece."""

_END: Final = b"# EOF\n"


def written(pages: Iterable[Metric], accept: str | None, rest: Rest) -> tuple[bytes, str]:
    """All of that and its content type: OpenMetrics for whoever accepts it, else the older text format.

    A family may come in several pages, one after the other.
    """
    try:
        encode, content_type = choose_encoder(accept or "")
    except (TypeError, ValueError):  # a version that is no version
        encode, content_type = choose_encoder("")
    texts: list[bytes] = []
    family, end, ready = None, b"", 0
    for page in pages:
        text = encode(_Only(page))
        if text.endswith(_END):
            text, end = text.removesuffix(_END), _END
        texts.append(text if page.name != family else _without_head(text))
        family = page.name
        ready += len(page.samples)
        if ready >= PIECE:
            ready = 0
            rest()
    return b"".join((*texts, end)), content_type


class _Only(Collector):
    """One page, as an encoder wants it."""

    def __init__(self, page: Metric) -> None:
        self._page = page

    def collect(self) -> Iterable[Metric]:
        return (self._page,)


def _without_head(text: bytes) -> bytes:
    """A page that follows another of its family does not say again what the family is."""
    while text.startswith(b"# "):
        _, _, text = text.partition(b"\n")
    return text
