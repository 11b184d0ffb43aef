"""The load: a process of its own that sends prepared requests over keep-alive connections and checks every answer.

It takes orders as JSON lines on stdin and answers each with one line on stdout: `open` connections, `run` a fixed
number of requests over them, `close` them. It must cost much less than what it measures, since both share the cores.
Latency is counted from the moment a request was due, so a paced run does not hide a stall.
"""

import asyncio
import gc
import json
import sys
import time
from array import array
from collections import deque
from itertools import repeat
from typing import Any

from bench import serving
from bench.caller import Caller, Expectation, Request, TaskCaller
from bench.timer import Ticker

RUN_BOUND = 300.0  # seconds; a run that takes longer is a failure
_FIRST_ID = 100_000_000  # ids keep nine digits, so that lengths are known beforehand
_WAVE = 200  # connections opened at once
_BUFFER = 262_144


class Fleet:
    """All connections to one target, and the tally of the run under way."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._expectation = Expectation(order["marker"].encode(), order["times"])
        self._shared = bytearray(_BUFFER)
        self._callers: list[Caller] = []
        self._number = _FIRST_ID
        self._start = order["start"].encode()
        self._starts = iter([start.encode() for start in order["starts"]]) if order["starts"] else repeat(self._start)
        self._done: asyncio.Future[None] | None = None
        self._begin(0, 0.0)

    def _begin(self, count: int, rate: float) -> None:
        self._count = count
        self._rate = rate
        self._issued = 0
        self._late: deque[float] = deque()  # paced requests that found no idle connection
        self._idle = deque(self._callers)
        self._took = array("d")
        self._complaints: list[str] = []
        self._wrong = 0

    async def open(self) -> None:
        """Open every connection, some at a time."""
        loop, order = asyncio.get_running_loop(), self._order
        for start in range(0, order["connections"], _WAVE):
            wave = range(start, min(start + _WAVE, order["connections"]))
            made = [loop.create_connection(lambda i=i: self._caller(i), order["host"], order["port"]) for i in wave]
            self._callers.extend(caller for _, caller in await asyncio.gather(*made))

    def _caller(self, index: int) -> Caller:
        heads, bodies = self._order["heads"], self._order["bodies"]
        head = heads[index % len(heads)]
        share = bodies[index :: self._order["connections"]] if self._order["in_turn"] else []
        requests = [_request(head, *body) for body in share or [bodies[index % len(bodies)]]]
        if self._order["to_results"]:
            return TaskCaller(self, self._expectation, requests, self._shared, head.encode())
        return Caller(self, self._expectation, requests, self._shared)

    def close(self) -> None:
        """Drop every connection."""
        for caller in self._callers:
            caller.close()

    async def run(self, count: int, rate: float) -> dict[str, Any]:
        """Send `count` requests, each caller's next after its last, or at `rate` a second, and tell how it went."""
        self._begin(count, rate)
        self._done = asyncio.get_running_loop().create_future()
        self._started, spent = time.perf_counter(), time.process_time()
        ticker = Ticker(1 / rate, self._issue_due) if rate else None
        if not rate:
            for caller in self._callers[:count]:
                self._issue(caller, time.perf_counter())
        try:
            async with asyncio.timeout(RUN_BOUND):
                await self._done
        finally:
            if ticker:
                ticker.close()
        return self._tell(time.perf_counter() - self._started, time.process_time() - spent)

    def _issue_due(self) -> None:
        now = time.perf_counter()
        while (sent := self._issued + len(self._late)) < self._count:
            due = self._started + (sent + 1) / self._rate
            if due > now:
                return
            if self._idle:
                self._issue(self._idle.popleft(), due)
            else:
                self._late.append(due)

    def _issue(self, caller: Caller, due: float) -> None:
        self._issued += 1
        self._number += 1
        caller.fire(self._number, due, next(self._starts, self._start))

    def finish(self, caller: Caller, took: float, complaint: str) -> None:
        """Count one answer and give its caller the next request."""
        self._took.append(took)
        if complaint:
            self._wrong += 1
            self._complaints = [*self._complaints[:2], complaint]
        if len(self._took) >= self._count:
            self._end()
        elif self._late:
            self._issue(caller, self._late.popleft())
        elif self._rate:
            self._idle.append(caller)
        elif self._issued < self._count:
            self._issue(caller, time.perf_counter())

    def lose(self) -> None:
        """A connection ended; during a run that counts as wrong and ends the run."""
        if self._done and not self._done.done():
            self._wrong += 1
            self._complaints = [*self._complaints[:2], "a connection was lost"]
            self._end()

    def _end(self) -> None:
        if self._done and not self._done.done():
            self._done.set_result(None)

    def _tell(self, seconds: float, spent: float) -> dict[str, Any]:
        took = sorted(self._took)
        last = len(took) - 1
        return {
            "count": len(took),
            "seconds": seconds,
            "load_cpu": spent,
            "p50": took[last // 2] if took else 0.0,
            "p99": took[last * 99 // 100] if took else 0.0,
            "wrong": self._wrong,
            "complaints": self._complaints,
        }


def _request(head: str, before: str, after: str) -> Request:
    length = len(before.encode()) + len(str(_FIRST_ID)) + len(after.encode())
    return f"{head}Content-Length: {length}\r\n\r\n{before}".encode(), after.encode()


async def _obey(order: dict[str, Any], fleets: list[Fleet]) -> dict[str, Any]:
    match order["do"]:
        case "open":
            fleets.append(Fleet(order))
            await fleets[-1].open()
            return {}
        case "run":
            return await fleets[-1].run(order["count"], order["rate"])
        case _:
            fleets.pop().close()
            await asyncio.sleep(0)  # one turn, so that the sockets are closed before the answer
            return {}


def main() -> None:
    """Obey orders until stdin ends."""
    serving.raise_descriptor_limit()
    fleets: list[Fleet] = []
    gc.disable()  # nothing here makes cycles per request, and a collection would be counted as latency
    with serving.runner() as runner:
        for line in sys.stdin:
            print(json.dumps(runner.run(_obey(json.loads(line), fleets))), flush=True)


if __name__ == "__main__":
    main()
