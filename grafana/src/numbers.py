"""How previews write numbers: short, with the unit that the panel has."""

from typing import Final

_TIMES: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_SIZES: Final = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_COUNTS: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_PER_SECOND: Final = {"reqps": " req/s", "cps": "/s", "ops": " op/s"}


def written(value: float, unit: str) -> str:
    """The number as a reader wants it, three digits of it."""
    match unit:
        case "s":
            return _scaled(value, _TIMES, " ")
        case "bytes":
            return _scaled(value, _SIZES, " ")
        case "percentunit":
            return f"{value * 100:.3g} %"
        case "locale":
            return f"{value:,.0f}"
        case "bool_yes_no" | "bool_on_off":
            return "yes" if value else "no"
    return _scaled(value, _COUNTS, "") + _PER_SECOND.get(unit, "")


def _scaled(value: float, steps: tuple[tuple[float, str], ...], space: str) -> str:
    if value == 0:
        return "0"
    size, name = next((step for step in steps if abs(value) >= step[0]), steps[-1])
    digits = f"{value / size:.3g}" if abs(value / size) < 1000 else f"{value / size:.0f}"
    return f"{digits}{space if name else ''}{name}"
