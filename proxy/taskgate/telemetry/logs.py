"""Log lines: one for each record of the gateway's own loggers, and a bare mention of what libraries say.

`configure` owns the root logger, so `logging.getLogger(...)` and `structlog.get_logger(...)` both end here. A line says
which request it belongs to, if to any, by the ids that the audit log and traces have. Holds: a record is one line of
printable characters; no text of an exception and no word of a library is ever written, because either may quote a
request, a token or a path.
"""

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any, Final, Literal, TextIO

import structlog

from taskgate.telemetry.request_context import current

Format = Literal["json", "logfmt", "console"]

_OWN: Final = "taskgate"
_PACKAGE: Final = Path(__file__).parent.parent
_WITHHELD: Final = "a library reported something; its words are withheld"
_FIELDS: Final = "taskgate_fields"
"""Where a structlog event carries its fields: any other name could be one that `logging` keeps for itself."""
_STOCK: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", _FIELDS}
_OURS: Final = frozenset(
    {"time", "level", "logger", "event", "request_id", "trace_id", "ctx", "exception", "causes", "at"}
)
_LONGEST: Final = 2048
_MOST: Final = 8
"""Of frames, and of causes."""
_DEEPEST: Final = 4


def configure(level: str, format: Format, stream: TextIO) -> None:
    """Write records from `level` up (`debug` to `error`) to `stream`, in place of wherever they went before."""
    unconfigure()
    root = logging.getLogger()
    _before.append((root.level, root.handlers[:]))
    handler = _Handler(stream)
    handler.setFormatter(_Formatter(_RENDERERS[format]))
    handler.addFilter(_worth_a_line)
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, _hand_over],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def unconfigure() -> None:
    """Put back what was there before `configure`; nothing happens without one."""
    if _before:
        root = logging.getLogger()
        level, root.handlers[:] = _before.pop()
        root.setLevel(level)
        structlog.reset_defaults()


_before: list[tuple[int, list[logging.Handler]]] = []


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is the library's
        """Lose the line: the stock answer is a traceback on standard error with the arguments in it."""


class _Formatter(logging.Formatter):
    def __init__(self, render: Callable[[dict[str, Any]], str]) -> None:
        super().__init__()
        self._render = render

    def format(self, record: logging.LogRecord) -> str:
        return self._render(_describe(record))


def _is_own(record: logging.LogRecord) -> bool:
    return record.name == _OWN or record.name.startswith(f"{_OWN}.")


def _worth_a_line(record: logging.LogRecord) -> bool:
    return _is_own(record) or record.levelno >= logging.WARNING


def _hand_over(_logger: Any, _method: str, event: structlog.typing.EventDict) -> tuple[tuple[Any, ...], dict[str, Any]]:
    words = (event.pop("event", ""), *event.pop("positional_args", ()))
    return words, {"exc_info": event.pop("exc_info", None), "extra": {_FIELDS: event}}


# --- what a line says ------------------------------------------------------------------------------------------------


def _describe(record: logging.LogRecord) -> dict[str, Any]:
    own = _is_own(record)
    line: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": _plain(record.name),
        "event": _event(record) if own else _WITHHELD,
    }
    if own:
        line.update(_whose())
        for key, value in _fields(record):
            line[f"{key}_" if key in _OURS else key] = _plain(value)
    if record.exc_info is not None and record.exc_info[1] is not None:
        error = record.exc_info[1]
        _, *causes = [type(each).__qualname__ for each in _lineage(error)]
        found = {"exception": type(error).__qualname__, "causes": causes, "at": list(_places(error.__traceback__))}
        line.update({key: value for key, value in found.items() if value})
    return line


def _whose() -> Iterator[tuple[str, str]]:
    """What tells the present request from others; whoever asks is shown as the audit log shows them."""
    request_context = current()
    if request_context is None:
        return
    yield "request_id", request_context.id
    if request_context.span is not None:
        yield "trace_id", request_context.span.trace_id
    if request_context.caller is not None:
        yield "ctx", f"c_{request_context.caller.key}"


def _event(record: logging.LogRecord) -> str:
    text, args = str(_plain(record.msg)), record.args
    if not args:
        return text
    try:
        text %= _plain(args) if isinstance(args, Mapping) else tuple(_plain(args))
    except (TypeError, ValueError, KeyError, OverflowError):
        return text
    return text[:_LONGEST]


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    yield from ((key, value) for key, value in vars(record).items() if key not in _STOCK)
    yield from getattr(record, _FIELDS, {}).items()


def _lineage(error: BaseException) -> Iterator[BaseException]:
    """The exception, then what it came from and what it holds, nearest first and never for ever."""
    waiting = [error]
    for _ in range(_MOST):
        if not waiting:
            return
        each = waiting.pop(0)
        yield each
        origin = each.__cause__
        if origin is None and not each.__suppress_context__:
            origin = each.__context__
        waiting += () if origin is None else (origin,)
        waiting += each.exceptions if isinstance(each, BaseExceptionGroup) else ()


def _places(traceback: TracebackType | None) -> Sequence[str]:
    frames = ((Path(frame.f_code.co_filename), line) for frame, line in walk_tb(traceback))
    own = [f"{path.relative_to(_PACKAGE).as_posix()}:{line}" for path, line in frames if path.is_relative_to(_PACKAGE)]
    return own[-_MOST:]


def _plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON may hold it. An exception is its class and so is anything unknown: their texts may quote."""
    match value:
        case None | bool():
            return value
        case int():
            return value if value.bit_length() <= 64 else type(value).__qualname__
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
        case date():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Mapping() if depth < _DEEPEST:
            return {str(_plain(key)): _plain(each, depth + 1) for key, each in value.items()}
        case list() | tuple() | set() | frozenset() if depth < _DEEPEST:
            return [_plain(each, depth + 1) for each in value]
    return type(value).__qualname__


# --- how a line looks ------------------------------------------------------------------------------------------------


def _as_json(line: dict[str, Any]) -> str:
    return json.dumps(line, separators=(",", ":"))


def _as_logfmt(line: dict[str, Any]) -> str:
    return " ".join(f"{_key(key)}={_word(value)}" for key, value in line.items())


def _as_console(line: dict[str, Any]) -> str:
    rest = dict(line)
    time, level, logger, event = (_printable(str(rest.pop(key))) for key in ("time", "level", "logger", "event"))
    return f"{time} {level:<8} {logger}: {event} {_as_logfmt(rest)}".rstrip()


def _key(key: str) -> str:
    return "".join(each if each.isascii() and (each.isalnum() or each in "_.-") else "_" for each in key) or "_"


def _word(value: Any) -> str:
    if isinstance(value, list):
        value = ",".join(each if isinstance(each, str) else json.dumps(each) for each in value)
    if not isinstance(value, str):
        value = json.dumps(value)
    bare = value.isprintable() and not any(each in value for each in ' ="\\')
    return value if bare and value else json.dumps(value)


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


_RENDERERS: Final[dict[Format, Callable[[dict[str, Any]], str]]] = {
    "json": _as_json,
    "logfmt": _as_logfmt,
    "console": _as_console,
}
