"""What is left in memory after something was done and its results were let go."""

import gc
import tracemalloc
from collections.abc import Callable


def memory_kept(work: Callable[[], object]) -> int:
    """Bytes that `work` leaves behind."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before
