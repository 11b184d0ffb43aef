"""Stand-ins in the page for answers of the API: an event stream that a test writes, and documents that it gives."""

import json
import re
from typing import Any

from playwright.async_api import Page, Route, expect

_EVENT_SOURCE = """
window.streams = [];
window.EventSource = class extends EventTarget {
  static CONNECTING = 0; static OPEN = 1; static CLOSED = 2;
  constructor(url) { super(); this.url = url; this.readyState = 0;
    document.documentElement.dataset.streams = window.streams.push(this); }
  close() { this.readyState = 2; }
};
"""


class EventStream:
    """The event stream of a page, which opens when the test says so."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._opened = 0

    @classmethod
    async def of(cls, page: Page) -> "EventStream":
        """Put it in place, before the page is loaded."""
        await page.add_init_script(_EVENT_SOURCE)
        return cls(page)

    async def open(self) -> None:
        """Open the newest stream of the page, once it has asked for one."""
        self._opened += 1
        # The policy of the page allows no `wait_for_function`.
        await expect(self._page.locator("html")).to_have_attribute("data-streams", str(self._opened))
        await self._page.evaluate(
            "const stream = window.streams.at(-1); stream.readyState = 1; stream.dispatchEvent(new Event('open'));"
        )

    async def connect(self) -> None:
        """Open it, and wait until the page has read its list of tasks again, as it does once connected."""
        # The first list: it may come later than the stream opens.
        await expect(self._page.locator("#tasks-caption")).to_have_text(re.compile(r"^\d"))
        async with self._page.expect_response("**/api/v1/tasks?*") as response:
            await self.open()
        await (await response.value).finished()

    async def refuse(self) -> None:
        """Close it, as a browser does when the answer is an error."""
        await self._page.evaluate(
            "const stream = window.streams.at(-1); stream.readyState = 2; stream.dispatchEvent(new Event('error'));"
        )

    async def send(self, name: str, *documents: dict[str, Any]) -> None:
        """Send events of that name, all at once."""
        await self._page.evaluate(
            "([name, texts]) => { for (const data of texts) "
            "window.streams.at(-1).dispatchEvent(new MessageEvent(name, {data})); }",
            [name, [json.dumps(each) for each in documents]],
        )


async def answer(page: Page, path: str, document: dict[str, Any]) -> None:
    """Have the API answer a path with a document."""

    async def fulfill(route: Route) -> None:
        await route.fulfill(json=document)

    await page.route(f"**/api/v1/{path}", fulfill)


def task(number: int, **changes: Any) -> dict[str, Any]:
    """A task as lists and events have it."""
    return {
        "reference": f"t_{number:022d}", "upstream": "reports", "tool": f"tool-{number}", "status": "working",
        "tool_error": False, "is_queued": False, "queue_position": None, "progress": None, "caller": "c_anonymous",
        "tenant": None, "created_at": "2026-11-28T07:00:00Z", "updated_at": "2026-11-28T07:00:00Z",
        "expires_at": "2026-11-28T08:00:00Z", "replica": "a", "is_retrieved": False, "at": "2026-11-28T07:00:00Z",
    } | changes  # fmt: skip


def refusal(reason: str, kind: str = "rate") -> dict[str, Any]:
    """A refusal as lists and events have it."""
    return {
        "at": "2026-11-28T07:00:00Z", "kind": kind, "caller": "c_0123456789abcdef", "address": "192.0.2.0/24",
        "upstream": "reports", "tool": "report", "reason": reason, "count": 1,
    }  # fmt: skip


CALLERS: dict[str, Any] = {
    "now": "2026-11-28T07:00:00Z",
    "replica": "a",
    "items": [
        {"caller": "c_0123456789abcdef", "limits": [{"limit": "calls", "upstream": None, "used": 3, "most": 20}]},
    ],
    "next": None,
}
REFUSALS: dict[str, Any] = {
    "now": "2026-11-28T07:00:00Z",
    "replica": "a",
    "items": [refusal("the rate calls is exhausted"), refusal("ids of tasks are tried", "security")],
}
EXPLANATION: dict[str, Any] = {
    "call": {"upstream": "reports", "path": "/reports/mcp", "tool": "report", "hints": {}},
    "promotion": {"mode": {"value": "auto", "from": "tasks.upgrade[0].mode", "default": True}},
    "caps": [{"key": "tasks_per_context", "value": 10, "from": "limits.concurrency.tasks_per_context"}],
}
