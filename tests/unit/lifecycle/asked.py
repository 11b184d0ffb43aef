"""An exchange that nothing comes of, for what happens before there is an answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from taskgate.auth.context import AuthContext
from taskgate.streams.bytes_in_flight import BytesInFlight
from taskgate.streams.event_stream import EventStream
from taskgate.streams.exchange import Admission, AdmitLarge, HttpMethod
from taskgate.streams.resumable import StreamOpener


@dataclass
class Asked:
    """A request of a host at `address`; `looked` counts how often that was asked for."""

    head: Admission = field(default_factory=lambda: Admission(method=HttpMethod.POST, path="/reports/mcp"))
    where: str = "192.0.2.7"
    looked: int = 0
    fields: Sequence[tuple[str, str]] = ()

    @property
    def address(self) -> str:
        self.looked += 1
        return self.where

    async def body(self, budget: BytesInFlight, caller: AuthContext, admit_large: AdmitLarge) -> bytes:
        raise AssertionError("the body is not asked for here")

    def count_answer(self, size: int) -> None:
        raise AssertionError("nothing is answered here")

    def stream(self) -> EventStream:
        raise AssertionError("nothing is answered here")

    def begin_document(self) -> bool:
        raise AssertionError("nothing is answered here")

    @property
    def is_streaming(self) -> bool:
        return False

    @property
    def has_begun(self) -> bool:
        return False

    def on_disconnect(self, forget: Callable[[], None]) -> None:
        """Nobody leaves."""

    @property
    def opener(self) -> StreamOpener | None:
        return None

    @opener.setter
    def opener(self, opener: StreamOpener | None) -> None:
        raise AssertionError("nothing is answered here")

    def resume(self, feed: EventStream, missed: Sequence[bytes]) -> bool:
        raise AssertionError("nothing is answered here")
