"""What a stream costs does not grow with how many there were before it."""

import pytest

from helpers.counted_calls import counted_calls
from helpers.manual_clock import ManualClock
from helpers.memory_stream_log import MemoryStreamLog
from taskgate.streams.event_log import EVENT_WEIGHT, STREAM_WEIGHT, EventBounds, EventBudget, MemoryEventLog
from taskgate.streams.resumable import ResumableStreams, StreamPosition
from taskgate.streams.sse_connection import SseConnection
from unit.streams.replicas import Buses, Replica

MARK = "0123456789ab"
ROOMY, FULL = EventBounds(), EventBounds(context=20 * (STREAM_WEIGHT + 2 * EVENT_WEIGHT))


def alone(bounds: EventBounds) -> ResumableStreams:
    budget, clock = EventBudget(lambda: bounds), ManualClock()
    return ResumableStreams(mark=MARK, log=MemoryEventLog(clock, budget=budget, caller="alice"), clock=clock)


def one_stream(resumable: ResumableStreams) -> int:
    """The calls that the stream of a call makes, from its begin to its end."""
    connection = SseConnection()
    with counted_calls() as made:
        stream = resumable.open("p", connection)
        stream.send("1")
        stream.finish("2")
    return made.count


@pytest.mark.thorough
@pytest.mark.parametrize("bounds", [ROOMY, FULL], ids=["with room", "at the bound"])
def test_the_three_thousandth_stream_of_a_session_costs_what_the_hundredth_did(bounds: EventBounds) -> None:
    resumable = alone(bounds)
    costs = [one_stream(resumable) for _ in range(3001)]
    assert costs[3000] == costs[100]
    assert max(costs[100:]) == costs[100]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["p", "g"])
def test_a_stream_costs_the_same_however_many_others_go_on(kind: str) -> None:
    resumable, costs = alone(ROOMY), list[int]()
    for _ in range(3001):
        # A call goes on without its host; a GET stream is given up for those that were lost after it.
        connection = SseConnection()
        with counted_calls() as made:
            stream = resumable.open(kind, connection)  # type: ignore[arg-type]
            stream.send("1")
            stream.connection_lost(connection)
        costs.append(made.count)
    assert costs[3000] == costs[100]


async def test_with_a_log_of_several_processes_to_take_a_stream_up_costs_the_same_however_many_go_on() -> None:
    clock = ManualClock()
    replica = Replica("a", MemoryStreamLog(), Buses(), clock)
    costs = list[int]()
    for number in range(1, 1001):
        replica.resumable.open("p", SseConnection())
        with counted_calls() as made:
            replica.resumable.find(StreamPosition(f"p{number}-{'61'.ljust(12, '0')}", 0))
        costs.append(made.count)
    assert costs[999] == costs[99]
    await replica.shared.close()
