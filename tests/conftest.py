"""What every test gets."""

import asyncio
import gc
import os
import re
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from zlib import crc32

import pytest
import uvloop
from hypothesis import settings

from helpers import event_ears
from helpers.forms import is_thorough
from helpers.leaks import no_task_left_behind, nothing_left_behind
from helpers.manual_clock import ManualClock, SeededEntropy
from helpers.shared_store import redis_server, shared_options, shared_server, valkey_server
from helpers.tally import pytest_runtest_logreport, pytest_runtest_protocol, pytest_terminal_summary
from helpers.told import MARKER, told
from helpers.virtual_time import VirtualTimePolicy, virtual_time
from taskgate.wiring import reload

__all__ = [
    "clock",
    "entropy",
    "event_ears",
    "no_task_left_behind",
    "nothing_left_behind",
    "pytest_runtest_logreport",
    "pytest_runtest_protocol",
    "pytest_terminal_summary",
    "redis_server",
    "shared_options",
    "shared_server",
    "told",
    "valkey_server",
]

# How long one example takes says more about the machine than about the code. "quick" is for `make unit`, "many" for
# `make fuzz`. No luck decides "few", and "same", with which each `make test` has the same examples.
settings.register_profile("taskgate", deadline=None, max_examples=50)
settings.register_profile("quick", deadline=None, max_examples=5)
settings.register_profile("many", deadline=None, max_examples=1000)
settings.register_profile("few", deadline=None, max_examples=5, derandomize=True, database=None)
settings.register_profile("same", deadline=None, max_examples=15, derandomize=True, database=None)
settings.load_profile("taskgate")

_LOOPS = ("asyncio", "uvloop")

# Modules that import one of them set the clock of their loop.
_PACED = frozenset({"paced", "pass_time"})

# A test that asks for one of them is marked `program`.
_STARTERS = frozenset({"nurse", "redis_server", "shared_server", "valkey_server"})

# Where time is virtual, and how long it waits at least before it jumps far.
_GRACES = {"unit": 0.001, "interaction": 0.01}

# As a gateway that is served does: many connections have both of their ends in one process here.
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)

# Secrets that tests write are nobody else's, as those of operators have to be.
os.umask(0o027)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which event loop tests run on, and whether with all their parameters."""
    parser.addoption("--loop", choices=_LOOPS, default="asyncio", help="the event loop of the tests (default: asyncio)")
    parser.addoption("--one", action="store_true", help="each test with one of its parameters, by its name")
    parser.addoption("--rewrite", action="store_true", help="write the outputs of tests/cases")


class _Uvloop:
    """The plugin that makes the loops of tests. With it, fixtures of modules and sessions begin anew for each test."""

    def pytest_asyncio_loop_factories(self) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
        return {"uvloop": uvloop.new_event_loop}


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known by which a test is not judged by what it tells, and have the loop that was asked for."""
    config.addinivalue_line("markers", MARKER)
    # A shell has jobs in the background ignore Ctrl-C, and so would each program that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--loop") == "uvloop":
        config.pluginmanager.register(_Uvloop())
    else:
        asyncio.set_event_loop_policy(VirtualTimePolicy())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests whose fixtures start programs, before any are left out for their marks."""
    if config.getoption("--loop") == "uvloop":
        # The clock of uvloop cannot be set.
        _leave_out(config, items, lambda item: not _PACED.isdisjoint(vars(getattr(item, "module", item))))
    if config.getoption("--one"):
        chosen = _one_of_each(items)
        _leave_out(config, items, lambda item: item.nodeid not in chosen)
    for item in items:
        if not _STARTERS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("program")
        if is_thorough(item.path):
            item.add_marker("thorough")


def _one_of_each(items: list[pytest.Item]) -> set[str]:
    """One item of each test: of all tests together, many have their first parameters, and many others."""
    tests: dict[str, list[str]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item.nodeid)
    return {names[crc32(name.rpartition("::")[2].encode()) % len(names)] for name, names in tests.items()}


def _leave_out(config: pytest.Config, items: list[pytest.Item], is_out: Callable[[pytest.Item], object]) -> None:
    left, out = [], []
    for item in items:
        (out if is_out(item) else left).append(item)
    items[:] = left
    config.hook.pytest_deselected(items=out)


def pytest_collection_finish() -> None:
    """Have what stays to the end, tests and modules, not looked through for garbage again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def usual_effort() -> Iterator[int]:
    """What fingerprints of configurations cost elsewhere; thousands of gateways that start here do not pay it."""
    with pytest.MonkeyPatch.context() as patch:
        usual = reload.SCRYPT_COST
        patch.setattr(reload, "SCRYPT_COST", 2)
        yield usual


_folders = count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the test's own. The one that pytest has moves a link, too, which takes longer than many a test."""
    folder = tmp_path_factory.getbasetemp() / f"{re.sub(r'[^a-zA-Z0-9]', '_', request.node.name)[:24]}{next(_folders)}"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(autouse=True)
def time_of_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Virtual time for these folders, but where programs or the machine's clock are what the test is about."""
    node = request.node
    is_real = any(node.get_closest_marker(each) for each in ("program", "real_time"))
    here = Path(__file__).parent
    folder = node.path.relative_to(here).parts[0] if node.path.is_relative_to(here) else ""
    with nullcontext() if is_real or folder not in _GRACES else virtual_time(_GRACES[folder]):
        yield


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands still until the test moves it."""
    return ManualClock()


@pytest.fixture
def entropy() -> SeededEntropy:
    """Chance that is the same in every run."""
    return SeededEntropy()
