"""Work on what is large leaves the event loop, and work on anything else does not."""

import threading

import pytest

from taskgate.system.offload import LARGE, offload


@pytest.mark.parametrize(("size", "leaves"), [(0, False), (LARGE, False), (LARGE + 1, True)])
async def test_only_work_on_what_is_large_leaves_the_loop(size: int, leaves: bool) -> None:
    worker = await offload(size, threading.get_ident)
    assert (worker != threading.get_ident()) is leaves


@pytest.mark.parametrize("size", [0, LARGE + 1])
async def test_what_goes_wrong_is_raised(size: int) -> None:
    with pytest.raises(ZeroDivisionError):
        await offload(size, lambda: 1 // 0)
