"""Log lines: one line of printable characters for each record, as JSON, logfmt or text.

`configure` takes over the root logger. Lines for a descriptor go through a `LineWriter`, so that the
event loop never waits for their reader. A line names its request by the ids that the audit log and
traces use. The texts of exceptions and the messages of libraries are withheld, because both may
quote a request, a token or a path.
"""

import atexit
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any, Final, Literal, TextIO

from taskgate.telemetry.line_writer import LineWriter
from taskgate.telemetry.request_context import current

Format = Literal["auto", "json", "logfmt", "console"]

_ROOT_LOGGER: Final = "taskgate"
_log = logging.getLogger("taskgate.telemetry")
_PACKAGE: Final = Path(__file__).parent.parent
_WITHHELD: Final = "a library reported something; its words are withheld"
_STANDARD_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_RESERVED_KEYS: Final = frozenset(
    {
        *("time", "level", "logger", "event", "request_id", "trace_id", "exception", "causes", "at"),
        *("ctx", "sub", "client_id", "tenant"),
    }
)
"""Keys that a line sets itself; a field of that name gets an underscore behind it."""
_MAX_TEXT: Final = 2048
_MAX_FRAMES: Final = 8
_MAX_CAUSES: Final = 8
_MAX_DEPTH: Final = 4


def configure(
    level: str,
    format: Format,
    stream: TextIO,
    *,
    hide: Callable[[str], str] | None = None,
    names_callers: bool = False,
) -> None:
    """Write records from `level` up (`debug` to `error`) to `stream`, in place of all other handlers.

    The format `auto` is `console` on a terminal and `json` elsewhere. `hide` masks secrets of the
    configuration in the texts of fields. `names_callers` adds the names of a request's caller. A second
    call for the same stream keeps what waits.
    """
    root = logging.getLogger()
    handler = next((each for each in root.handlers if isinstance(each, _Handler) and each.stream is stream), None)
    if handler is None:
        unconfigure()
        _saved_root.append((root.level, root.handlers[:]))
        handler = _Handler(stream)
        handler.addFilter(_is_logged)
        root.handlers[:] = [handler]
    if format == "auto":
        format = "console" if is_terminal(stream) else "json"
    handler.setFormatter(_Formatter(_RENDERERS[format], hide, names_callers=names_callers))
    root.setLevel(level.upper())


def flush() -> None:
    """Wait until the lines so far are written, but not for long if they are not read."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _Handler):
            handler.wait()


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is a terminal; a closed one is none."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def printable(text: str) -> str:
    """Return a text with an escape in the place of each character that is not printable."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def unconfigure() -> None:
    """Restore the root logger from before `configure`; without effect if that was not called."""
    if _saved_root:
        root = logging.getLogger()
        ours = root.handlers[:]
        level, root.handlers[:] = _saved_root.pop()
        root.setLevel(level)
        for handler in ours:
            if isinstance(handler, _Handler):
                handler.end()


_saved_root: list[tuple[int, list[logging.Handler]]] = []
"""Level and handlers of the root logger from before `configure`; empty while it is not in force."""


class _Handler(logging.StreamHandler[TextIO]):
    """Writes lines to a stream; through a LineWriter, if the stream has a descriptor."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        descriptor = _descriptor_of(stream)
        self._writer = None if descriptor is None else LineWriter(descriptor, _report_dropped)
        if self._writer is not None:
            # It runs before the end of `logging`, which holds the lock that a report needs.
            atexit.register(self._writer.close)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line of a record, or have it written."""
        if self._writer is None:
            super().emit(record)
            return
        try:
            self._writer.add(f"{self.format(record)}\n".encode(errors="backslashreplace"))
        except Exception:
            self.handleError(record)

    def wait(self) -> None:
        """Wait until the lines so far are written, but not for long."""
        if self._writer is not None:
            self._writer.flush()

    def end(self) -> None:
        """Write what waits, and end the thread."""
        if self._writer is not None:
            self._writer.close()
            atexit.unregister(self._writer.close)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is the library's
        """Drop the line. The default prints a traceback with the arguments to standard error."""


def _descriptor_of(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):
        # It is in memory, or closed.
        return None


def _report_dropped(lines: int) -> None:
    _log.warning("log lines were dropped, because standard error was not read", extra={"lines": lines})


class _Formatter(logging.Formatter):
    def __init__(
        self, render: Callable[[dict[str, Any]], str], hide: Callable[[str], str] | None, *, names_callers: bool
    ) -> None:
        super().__init__()
        self._render = render
        self._hide = hide
        self._names_callers = names_callers

    def format(self, record: logging.LogRecord) -> str:
        return self._render(_line_of(record, self._hide, names_callers=self._names_callers))


def _is_own(record: logging.LogRecord) -> bool:
    return record.name == _ROOT_LOGGER or record.name.startswith(f"{_ROOT_LOGGER}.")


def _is_logged(record: logging.LogRecord) -> bool:
    """Whether a record becomes a line: those of libraries only from WARNING up."""
    return _is_own(record) or record.levelno >= logging.WARNING


# --- the content of a line -------------------------------------------------------------------------------------------


def _line_of(record: logging.LogRecord, hide: Callable[[str], str] | None, *, names_callers: bool) -> dict[str, Any]:
    own = _is_own(record)
    line: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": _plain(record.name),
        "event": _event(record) if own else _WITHHELD,
    }
    if own:
        line.update(_request_fields(names_callers=names_callers))
        for key, value in _fields(record):
            plain = _plain(value)
            line[f"{key}_" if key in _RESERVED_KEYS else key] = plain if hide is None else _hidden(plain, hide)
    if record.exc_info is not None and record.exc_info[1] is not None:
        error = record.exc_info[1]
        _, *causes = [type(each).__qualname__ for each in _causes_of(error)]
        found = {"exception": type(error).__qualname__, "causes": causes, "at": list(_own_frames(error.__traceback__))}
        line.update({key: value for key, value in found.items() if value})
    return line


def _request_fields(*, names_callers: bool) -> Iterator[tuple[str, Any]]:
    """The ids of the current request, and its caller as in the audit log; its names with `names_callers`."""
    request_context = current()
    if request_context is None:
        return
    yield "request_id", request_context.id
    if request_context.span is not None:
        yield "trace_id", request_context.span.trace_id
    if request_context.caller is not None:
        yield "ctx", f"c_{request_context.caller.key}"
        names = request_context.caller.names if names_callers else None
        found = () if names is None else (("sub", names.subject), ("client_id", names.client), ("tenant", names.tenant))
        yield from ((key, _plain(name)) for key, name in found if name is not None)


def _event(record: logging.LogRecord) -> str:
    """The message with its arguments; without them if they do not fit, as a log must not fail."""
    text, args = str(_plain(record.msg)), record.args
    if not args:
        return text
    try:
        text %= _plain(args) if isinstance(args, Mapping) else tuple(_plain(args))
    except (TypeError, ValueError, KeyError, OverflowError):
        return text
    return text[:_MAX_TEXT]


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    yield from ((key, value) for key, value in vars(record).items() if key not in _STANDARD_ATTRIBUTES)


def _causes_of(error: BaseException) -> Iterator[BaseException]:
    """The exception, its causes and the members of groups, nearest first; bounded, as it may be a cycle."""
    waiting = [error]
    for _ in range(_MAX_CAUSES):
        if not waiting:
            return
        each = waiting.pop(0)
        yield each
        origin = each.__cause__
        if origin is None and not each.__suppress_context__:
            origin = each.__context__
        waiting += () if origin is None else (origin,)
        waiting += each.exceptions if isinstance(each, BaseExceptionGroup) else ()


def _own_frames(traceback: TracebackType | None) -> Sequence[str]:
    frames = ((Path(frame.f_code.co_filename), line) for frame, line in walk_tb(traceback))
    own = [f"{path.relative_to(_PACKAGE).as_posix()}:{line}" for path, line in frames if path.is_relative_to(_PACKAGE)]
    return own[-_MAX_FRAMES:]


def _plain(value: Any, depth: int = 0) -> Any:
    """A value for JSON. Exceptions and unknown objects become the names of their classes, as their texts
    may quote a secret.
    """
    match value:
        case None | bool():
            return value
        case int():
            return value if value.bit_length() <= 64 else type(value).__qualname__
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}…"
        case date():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Mapping() if depth < _MAX_DEPTH:
            return {str(_plain(key)): _plain(each, depth + 1) for key, each in value.items()}
        case list() | tuple() | set() | frozenset() if depth < _MAX_DEPTH:
            return [_plain(each, depth + 1) for each in value]
    return type(value).__qualname__


def _hidden(plain: Any, hide: Callable[[str], str]) -> Any:
    """A plain value whose texts have passed `hide`."""
    match plain:
        case str():
            return hide(plain)
        case dict():
            return {key: _hidden(each, hide) for key, each in plain.items()}
        case list():
            return [_hidden(each, hide) for each in plain]
    return plain


# --- formats ---------------------------------------------------------------------------------------------------------


def _as_json(line: dict[str, Any]) -> str:
    return json.dumps(line, separators=(",", ":"))


def _as_logfmt(line: dict[str, Any]) -> str:
    return " ".join(f"{_logfmt_key(key)}={_logfmt_value(value)}" for key, value in line.items())


def _as_console(line: dict[str, Any]) -> str:
    rest = dict(line)
    time, level, logger, event = (printable(str(rest.pop(key))) for key in ("time", "level", "logger", "event"))
    return f"{time} {level:<8} {logger}: {event} {_as_logfmt(rest)}".rstrip()


def _logfmt_key(key: str) -> str:
    return "".join(each if each.isascii() and (each.isalnum() or each in "_.-") else "_" for each in key) or "_"


def _logfmt_value(value: Any) -> str:
    if isinstance(value, list):
        value = ",".join(each if isinstance(each, str) else json.dumps(each) for each in value)
    if not isinstance(value, str):
        value = json.dumps(value)
    bare = value.isprintable() and not any(each in value for each in ' ="\\')
    return value if bare and value else json.dumps(value)


_RENDERERS: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "json": _as_json,
    "logfmt": _as_logfmt,
    "console": _as_console,
}
