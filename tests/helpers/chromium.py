"""The Chromium of the machine, for tests that look at pages."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser, async_playwright, expect

from provider.install import nothing_may_be_missing

PATIENCE_MS: Final = 45_000
"""Milliseconds that an action of a page, or what an event changes, may take."""
_MISSING = "there is no chromium here (Debian: apt-get install chromium)"

expect.set_options(timeout=PATIENCE_MS)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser for the length of a block; the test is skipped where there is none, unless nothing may be missing."""
    program = shutil.which("chromium")
    if program is None:
        (pytest.fail if nothing_may_be_missing() else pytest.skip)(_MISSING)
    # Its sandbox refuses to work for root.
    arguments = ["--disable-dev-shm-usage", "--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            await browser.close()


def pictures(otherwise: Path) -> Path:
    """The folder of the pictures that documents show; another one, unless `make pictures` makes them."""
    return Path(os.environ.get("PICTURES") or otherwise)
