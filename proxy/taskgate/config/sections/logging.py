"""Section `logging`: the level and the format of the log."""

from __future__ import annotations

from typing import Literal

from taskgate.config.fields import Section


class LoggingSection(Section):
    """The log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""
    format: Literal["json", "logfmt", "console"] = "json"
    """The format of lines."""
