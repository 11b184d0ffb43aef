"""The renderer of audit events: `Renderer` makes the document of a line in the configured format.

A document has no `seq`, `prev` or signature yet: `Chain` adds them to its `native_part`.
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
    """The maker of documents of events, on any thread.

    Raises ValueError for an invalid path in `line_options.redact`.
    """

    def __init__(self, line_options: LineOptions, *, key: bytes, node: str) -> None:
        self._native = NativeRenderer(line_options, key=key, node=node)
        self._translate = _FORMATS[line_options.format]
        self._templates = LineTemplates(self._native) if line_options.format == "native" else None
        # An attribute, not a method: this renders nearly every line, and saves one call.
        self.template_line: TemplateLine = _no_template if self._templates is None else self._templates.line
        """The canonical line with `seq` and `prev` (JSON text); None for an event without a
        template."""

    def __call__(self, event: AuditEvent) -> dict[str, Any]:
        """A new document, without `seq` and `prev`."""
        return self._translate(self._native.document(event))


def native_part(document: dict[str, Any]) -> dict[str, Any] | None:
    """The native document in a document of any format; None without one.

    It has `v`, `event`, `data` and `node`, and takes `seq` and `prev`.
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
