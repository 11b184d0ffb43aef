"""Which event loop is taken."""

import asyncio
import sys
from collections.abc import Callable

import pytest
import uvloop

from taskgate.system.event_loop import LoopUnavailable, loop_factory, name_of


@pytest.mark.parametrize(
    ("name", "taken"),
    [("auto", uvloop.new_event_loop), ("uvloop", uvloop.new_event_loop), ("asyncio", asyncio.new_event_loop)],
)
def test_uvloop_is_taken_where_it_is_installed_unless_it_is_refused(name: str, taken: object) -> None:
    assert loop_factory(name) is taken


def test_without_uvloop_asyncio_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_factory("auto") is asyncio.new_event_loop


def test_without_uvloop_to_demand_it_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with pytest.raises(LoopUnavailable, match=r"pip install 'taskgate\[uvloop\]'"):
        loop_factory("uvloop")


@pytest.mark.parametrize(
    ("made", "name"),
    [(asyncio.SelectorEventLoop, "asyncio"), (uvloop.new_event_loop, "uvloop")],
    ids=["asyncio", "uvloop"],
)
def test_a_loop_has_the_name_of_its_package(made: Callable[[], asyncio.AbstractEventLoop], name: str) -> None:
    loop = made()
    try:
        assert name_of(loop) == name
    finally:
        loop.close()
