"""Runs many files of tests at once, for the coverage of many modules, and keeps apart what each file of them covers.

What is loaded counts for the module that is loaded, what its tests run for their file: these are the contexts of the
coverage that is written. As arguments it takes the configuration of coverage, the file for what was measured, and then
what pytest is given. It ends with the status of pytest.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from types import ModuleType

import coverage
import pytest


class Contexts:
    """A plugin of pytest: says who is the one that runs what is run now."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self._context = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        """A file may work at its head, too."""
        with self.of(str(collector.path) if isinstance(collector, pytest.Module) else ""):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Tests come file by file: what is switched here is left as it is for the next."""
        self._switch(str(item.path))
        return (yield)

    @contextmanager
    def of(self, context: str) -> Iterator[None]:
        """What is run inside is run by this one."""
        before = self._context
        self._switch(context)
        try:
            yield
        finally:
            self._switch(before)

    def _switch(self, context: str) -> None:
        if context != self._context:
            self._context = context
            self._measured.switch_context(context)


def main(configuration: str, data: str, *arguments: str) -> int:
    """Measures, and returns the status that pytest ended with."""
    measured = coverage.Coverage(data_file=data, config_file=configuration)
    contexts = Contexts(measured)
    execute = SourceFileLoader.exec_module

    def loaded(loader: SourceFileLoader, module: ModuleType) -> None:
        with contexts.of(str(loader.path)):
            execute(loader, module)

    SourceFileLoader.exec_module = loaded  # type: ignore[method-assign]
    measured.start()
    try:
        return pytest.main([*arguments], plugins=[contexts])
    finally:
        measured.stop()
        measured.save()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
