"""A page of a browser that shows the console, with the operator's ways to use it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from playwright.async_api import Browser, ConsoleMessage, Error, Locator, Page, expect

from helpers.chromium import PATIENCE_MS
from helpers.gateway.gateway import Gateway
from helpers.waiting import until
from interaction.operators import OPS, ROLES, look

WIDE, NARROW = (1600, 900), (375, 740)
_EXPECTED = ("Failed to load resource",)
"""How the browser's own lines about refused requests begin; no line of the page does."""


@dataclass
class Visitor:
    """One page, at the console of a gateway."""

    page: Page
    gateway: Gateway
    bearer = OPS
    faults: list[str] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def of(
        cls,
        browser: Browser,
        gateway: Gateway,
        size: tuple[int, int],
        scheme: Literal["light", "dark"] = "light",
        zone: str = "UTC",
    ) -> AsyncIterator["Visitor"]:
        """A new page that has cookies of its own."""
        view = {"width": size[0], "height": size[1]}
        context = await browser.new_context(viewport=view, color_scheme=scheme, locale="en-GB", timezone_id=zone)  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE_MS)
        visitor = cls(await context.new_page(), gateway)
        visitor.page.on("pageerror", visitor.throw)
        visitor.page.on("console", visitor.hear)
        try:
            yield visitor
        finally:
            await context.close()
        assert not visitor.faults, visitor.faults

    def throw(self, error: Error) -> None:
        """An error that no code of the page has caught."""
        self.faults.append(str(error))

    def hear(self, message: ConsoleMessage) -> None:
        """A line in the browser's own console."""
        if message.type == "error" and not message.text.startswith(_EXPECTED):
            self.faults.append(message.text)

    @property
    def origin(self) -> str:
        """Where the console is."""
        return self.gateway.operators_origin

    async def documents(self, path: str) -> dict[str, Any]:
        """What the API says, beside the page."""
        return await look(self.gateway, path)

    async def until_status(self, reference: str, status: str) -> None:
        """Wait until a task has that status."""
        await until(lambda: self.documents(f"/api/v1/tasks/{reference}"), lambda found: found["status"] == status)

    async def open(self, view: str = "") -> None:
        """Go to the console."""
        await self.page.goto(f"{self.origin}/ui{view}")

    async def sign_in(self, name: str = "ops", view: str = "Tasks") -> None:
        """Open the console with the link that has the token of that name, and choose a view."""
        await self.open(f"#token={ROLES[name][1].removeprefix('Bearer ')}")
        await self.page.get_by_role("button", name=f"Sign in as {name}").click()
        await expect(self.page.locator("#operator")).to_have_text(f"{name} ({ROLES[name][0]})")
        if view:
            await self.go(view)

    async def go(self, view: str) -> None:
        """Choose a view, by its name in the navigation."""
        await self.page.get_by_role("link", name=view, exact=True).click()
        await expect(self.page.get_by_role("link", name=view, exact=True)).to_have_attribute("aria-current", "page")

    def row(self, text: str) -> Locator:
        """The row of a table that has the text."""
        return self.page.locator("main section:not([hidden]) tbody tr").filter(has_text=text)
