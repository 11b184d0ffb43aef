"""What the keys about sparing servers say together.

What lives here: the rules between keys of `retries` and `health`, and what `health` is where nothing is written. What
must not: the models. What holds: as in coherence, malformed parts contradict nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from taskgate.config.units import DurationIn
from taskgate.config.written import Contradiction, read, section, told

_EXCHANGE = "token_exchange"


def without_health(written: object) -> object:
    """What is written, with `health: null` for servers that take nobody's token but a caller's, unless it is given."""
    upstreams = section(written, "upstreams")
    if not isinstance(written, Mapping) or not any(_lacks_token(each) for each in upstreams.values()):
        return written
    filled = {
        name: {**each, "health": None} if isinstance(each, Mapping) and _lacks_token(each) else each
        for name, each in upstreams.items()
    }
    return {**written, "upstreams": filled}


def protection_contradictions(written: object, usual: object) -> Iterator[Contradiction]:
    """Every contradiction among these keys; a key that `written` lacks is as in `usual`."""
    for name, upstream in section(written, "upstreams").items():
        here = ("upstreams", name)
        if section(upstream, "credentials").get("mode") == _EXCHANGE and section(upstream).get("health") is not None:
            why = "with credentials.mode token_exchange: without a caller there is no token to exchange"
            yield (*here, "health"), f"must be null {why}"
        trees = written, _as_usual(usual, name)
        pauses = (*here, "retries", "backoff"), (*here, "retries", "max_backoff")
        if section(upstream, "retries") and all(any(_has(tree, keys) for tree in trees) for keys in pauses):
            least, most = (read(trees, keys, DurationIn().read) for keys in pauses)
            if least and most and least > most:
                yield told(*trees, *pauses, ("must be at most", "must be at least"))


def _lacks_token(upstream: object) -> bool:
    given = section(upstream)
    return "health" not in given and section(given, "credentials").get("mode") == _EXCHANGE


def _as_usual(usual: object, name: str) -> object:
    return {"upstreams": {name: section(usual, "upstream")}}


def _has(tree: object, keys: tuple[str, ...]) -> bool:
    return keys[-1] in section(tree, *keys[:-1])
