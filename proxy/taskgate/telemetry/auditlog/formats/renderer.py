"""From an event to the document that a line is written of, in the format that the operator wants.

What must not live here: numbers, chains and signatures, which are put into `own_part` by whoever writes lines.
"""

from collections.abc import Callable
from typing import Any, Final

from taskgate.telemetry.auditlog.events import AuditEvent
from taskgate.telemetry.auditlog.formats import ecs, ocsf
from taskgate.telemetry.auditlog.formats.line_templates import LineTemplates
from taskgate.telemetry.auditlog.formats.native import NativeRenderer
from taskgate.telemetry.auditlog.settings import LineOptions

TemplateLine = Callable[[AuditEvent, int, bytes], bytes | None]


class Renderer:
    """Makes documents of events, wherever lines are made. Raises ValueError where a path of `telling` is none."""

    def __init__(self, line_options: LineOptions, *, key: bytes, node: str) -> None:
        self._native = NativeRenderer(line_options, key=key, node=node)
        self._translate = _FORMATS[line_options.format]
        self._templates = LineTemplates(self._native) if line_options.format == "native" else None
        # Not a method, for one call less: nearly every line is written by this.
        self.template_line: TemplateLine = _no_template if self._templates is None else self._templates.line
        """The canonical text of that document with `seq` and `prev`, which is JSON text; None where it takes longer."""

    def __call__(self, event: AuditEvent) -> dict[str, Any]:
        """A document of its own, without what ties lines together."""
        return self._translate(self._native.document(event))


def native_part(document: dict[str, Any]) -> dict[str, Any] | None:
    """What is ours in a document of any format, the same in all of them; None where nothing is.

    It has `v`, `event`, `data` and `node`, and is where `seq` and `prev` belong.
    """
    if "v" in document and isinstance(document.get("event"), str):
        return document
    for candidate in (document.get("unmapped"), document.get("taskgate")):
        if isinstance(candidate, dict) and isinstance(candidate.get("event"), str) and "v" in candidate:
            return candidate
    return None


def _no_template(_event: AuditEvent, _seq: int, _prev: bytes) -> bytes | None:
    return None


def _unchanged(native: dict[str, Any]) -> dict[str, Any]:
    return native


_FORMATS: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "native": _unchanged,
    "ocsf": ocsf.document,
    "ecs": ecs.document,
}
