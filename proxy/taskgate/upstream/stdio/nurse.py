"""Client of the supervisor process ("nursery"): `Nurse` starts programs, one per gateway.

The supervisor starts the programs, and ends them when the gateway is gone. It is started with the
first program, and again with the next one after it died; `Nursing` is one run of it. `wiring`
creates the nurse and closes it at the end; the `Starter` of each server uses it.
"""

from collections.abc import Callable
from logging import getLogger

from taskgate.upstream.stdio.nursing import Child, Nursing, Order, ProgramNotStarted

log = getLogger("taskgate.upstream")


class Nurse:
    """The starter of programs for all servers of one gateway. Belongs to one event loop, and does not block
    it."""

    def __init__(self) -> None:
        self._nursing: Nursing | None = None
        self._runs: list[Nursing] = []
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process id of the supervisor; None while it does not run."""
        return None if self._nursing is None or self._nursing.is_over else self._nursing.pid

    async def start(self, order: Order, ended: Callable[[int], None]) -> Child:
        """Start a program in a session of its own. `ended` is called once with its status, maybe
        before this returns.

        The status is as of `nursing.Child`. Raises ProgramNotStarted. The streams stay open here. A
        program whose start is cancelled is ended.
        """
        return await self._present().start(order, ended)

    async def close(self) -> None:
        """End all programs and the supervisor; nothing can be started any more."""
        self._closed = True
        for nursing in self._runs:
            await nursing.close()

    def _present(self) -> Nursing:
        """Return the current run of the supervisor; start one if there is none. Raises
        ProgramNotStarted."""
        if self._closed:
            raise ProgramNotStarted(0)
        if self._nursing is None or self._nursing.is_over:
            if self._nursing is not None:
                log.error("the nursery process ended, and all servers' programs with it; a new one is started")
            try:
                self._nursing = Nursing()
            except OSError as refused:
                raise ProgramNotStarted(refused.errno or 0) from None
            # A run that is over may still be about to exit; `close` waits for it.
            self._runs = [*(run for run in self._runs if not run.is_gone), self._nursing]
        return self._nursing
