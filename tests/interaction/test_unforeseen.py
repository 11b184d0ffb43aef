"""What nobody foresaw: a fault of our own is told without a word about itself, and no task stays unfinished for it."""

import logging
from typing import Any

import pytest

from helpers.scripted_upstream import ScriptedServer
from helpers.whole_gateway import Environment, SystemEntropy, configuration, running, upstream_maker
from taskgate.upstream.stdio.nurse import Nurse

PLANTED = "s3cret of the fault"


class Faulty:
    """Hands everything to `inner`, but what a name in `faults` stands for raises what it should not."""

    def __init__(self, inner: Any, *faults: str) -> None:
        self._inner = inner
        self._faults = faults

    def session(self, *given: Any) -> "Faulty":
        return Faulty(self._inner.session(*given), *self._faults)

    def __getattr__(self, name: str) -> Any:
        if name not in self._faults:
            return getattr(self._inner, name)

        async def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError(PLANTED)

        return fail


@pytest.mark.parametrize("as_task", [False, True])
async def test_a_fault_of_ours_is_an_internal_error_and_no_more(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture, as_task: bool
) -> None:
    make = upstream_maker(Nurse(), SystemEntropy())
    around = Environment(make_upstream=lambda *given: Faulty(make(*given), "run", "relay"))  # type: ignore[arg-type, return-value]
    with caplog.at_level(logging.ERROR):
        async with running(configuration({"reports": server.url}), around) as gateway:
            host = await gateway.greeted()
            if as_task:
                task = await host.start("echo")
                answer = await host.ask("tasks/result", {"taskId": task["taskId"]})
                assert (await host.task(task["taskId"]))["status"] == "failed"
            else:
                answer = await host.call("echo")
    assert (answer.status, answer.code) == (200, -32603)
    assert answer.error["data"] == {"origin": "gateway", "reason": "internal", "dispatched": True}
    assert PLANTED not in answer.text
    assert [record.name for record in caplog.records] == ["taskgate.runner" if as_task else "taskgate.gateway"]
