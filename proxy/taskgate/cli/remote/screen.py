"""Screens on a terminal that follow the event stream of the API: `show_screen`.

rich draws them. A screen has a `View`, which asks for its state after a change, and draws it.
"""

import os
import queue
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from taskgate.cli.exits import FAILED, fail
from taskgate.cli.remote.client import AdminClient, ApiRefused, GatewayUnreachable
from taskgate.cli.remote.event_stream import ALIVE, EventStream, Notice, explain_refusal

if TYPE_CHECKING:
    from rich.console import RenderableType

CHANGED: Final = ""
"""What `ChangeWatcher.next` returns after a change; a key is one character."""
INTERVAL: Final = 0.5
"""Seconds from one state to the next, at least, unless an option says otherwise."""
_TICK: Final = 1.0
"""Seconds after which a screen is drawn anew without a change."""
_ASK_EVERY: Final = 10.0
"""Seconds after which the state is asked for without a change."""


class View(Protocol):
    """The content of a screen: its state, and how it is drawn."""

    def ask(self) -> None:
        """Ask for the state. Raises ApiRefused and GatewayUnreachable."""
        ...

    def note(self, notice: Notice) -> None:
        """Learn of an event; called by another thread."""
        ...

    def press(self, key: str) -> bool:
        """Do what a key means; whether the state must be asked for."""
        ...

    def draw(self, height: int, problem: str | None, age: float) -> "RenderableType":
        """The screen of so many lines. `problem` is why the state is `age` seconds old."""
        ...


class ChangeWatcher(threading.Thread):
    """A thread that follows the event stream, and notes that there was a change.

    While the gateway has no room for its stream, or is not reached, it does so each `interval` seconds.
    `refusal` is why there will be no stream.
    """

    def __init__(self, stream: EventStream, interval: float, note: Callable[[Notice], None]) -> None:
        # A read of the stream has no end, so Ctrl-C does not wait for it.
        super().__init__(daemon=True)
        self._stream = stream
        self._interval = interval
        self._note = note
        # Ctrl-C may come at any point of a wait for it; an event of threading then has a lock that no thread holds.
        self._inbox = queue.SimpleQueue[str]()
        self._has_change = False
        self.refusal: ApiRefused | None = None

    def run(self) -> None:
        while self.refusal is None:
            try:
                for notice in self._stream.read():
                    if notice.name != ALIVE:
                        self._note(notice)
                        self._note_change()
                pause = self._stream.pause
            except (ApiRefused, GatewayUnreachable) as error:
                if isinstance(error, ApiRefused) and error.status < 500:
                    self.refusal = error
                pause = self._interval
                self._note_change()
            time.sleep(pause)

    def press(self, key: str) -> None:
        """Have `next` return a key."""
        self._inbox.put(key)

    def next(self, within: float) -> str | None:
        """Wait for a key or a change, at most for so many seconds: the key, CHANGED, or None."""
        try:
            found = self._inbox.get(timeout=within)
        except queue.Empty:
            return None
        if found == CHANGED:
            self._has_change = False
        return found

    def _note_change(self) -> None:
        if not self._has_change:
            self._has_change = True
            self._inbox.put(CHANGED)


def show_screen(client: AdminClient, view: View, kinds: tuple[str, ...], interval: float) -> None:
    """Draw a view that has its first state, until `q` or Ctrl-C.

    There is a new state after changes, but `interval` seconds after the last one at the earliest.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console()
    watcher, problem, asked = ChangeWatcher(EventStream(client, *kinds), interval, view.note), None, time.monotonic()
    watcher.start()
    try:
        drawn = view.draw(console.height, None, 0.0)
        with _keys(watcher.press), Live(drawn, console=console, screen=True, auto_refresh=False) as live:
            while watcher.refusal is None:
                # Ages grow without an event.
                found = watcher.next(_TICK)
                if found == "q":
                    return
                must_ask = found == CHANGED or (found is not None and view.press(found))
                if must_ask or problem is not None or time.monotonic() - asked >= _ASK_EVERY:
                    try:
                        view.ask()
                        problem, asked = None, time.monotonic()
                    except (ApiRefused, GatewayUnreachable) as error:
                        # The last state stays, with what is wrong now.
                        problem = str(error)
                live.update(view.draw(console.height, problem, time.monotonic() - asked), refresh=True)
                if found == CHANGED:
                    time.sleep(interval)
    except KeyboardInterrupt:
        return
    fail(explain_refusal(watcher.refusal), FAILED)


@contextmanager
def _keys(press: Callable[[str], None]) -> Iterator[None]:
    """Have the keys of a terminal pressed at once; without one there are none."""
    if not sys.stdin.isatty():
        yield
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    threading.Thread(target=_read_keys, args=(number, press), daemon=True).start()
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _read_keys(number: int, press: Callable[[str], None]) -> None:
    try:
        while read := os.read(number, 1):
            press(read.decode("ascii", "replace"))
    except OSError:
        # The terminal is gone; the signal for that ends the program.
        return
