"""Stand-ins in the page for answers of the API: an event stream that a test writes, and documents that it gives."""

import json
import re
from typing import Any

from playwright.async_api import Page, Route, expect

_STREAMS = """
window.streams = [];
const realFetch = window.fetch;
window.fetch = (path, options) => {
  if (path !== "/api/v1/events") return realFetch(path, options);
  return new Promise((resolve, reject) => {
    let controller = null;
    const body = new ReadableStream({ start(made) { controller = made; } });
    options.signal.addEventListener("abort", () => {
      const aborted = new DOMException("aborted", "AbortError");
      reject(aborted);
      controller.error(aborted);
    });
    document.documentElement.dataset.streams = window.streams.push({
      open: () => resolve(new Response(body)),
      end: () => controller.close(),
      refuse: () => resolve(new Response("{}", { status: 503 })),
      send: (text) => controller.enqueue(new TextEncoder().encode(text)),
    });
  });
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
        await page.add_init_script(_STREAMS)
        return cls(page)

    async def open(self) -> None:
        """Open the next stream of the page, once it has asked for one."""
        await self._asked()
        await self._page.evaluate("window.streams.at(-1).open()")

    async def connect(self) -> None:
        """Open it, and wait until the page has read its list of tasks again, as it does once connected."""
        # The first list: it may come later than the stream opens.
        await expect(self._page.locator("#tasks-caption")).to_have_text(re.compile(r"^\d"))
        async with self._page.expect_response("**/api/v1/tasks?*") as response:
            await self.open()
        await (await response.value).finished()

    async def refuse(self) -> None:
        """Answer the request for the next stream with an error."""
        await self._asked()
        await self._page.evaluate("window.streams.at(-1).refuse()")

    async def end(self) -> None:
        """End the stream that is open."""
        await self._page.evaluate("window.streams.at(-1).end()")

    async def _asked(self) -> None:
        self._opened += 1
        # The policy of the page allows no `wait_for_function`.
        await expect(self._page.locator("html")).to_have_attribute("data-streams", str(self._opened))

    async def send(self, name: str, *documents: dict[str, Any]) -> None:
        """Send events of that name, all at once."""
        text = "".join(f"event: {name}\ndata: {json.dumps(each)}\n\n" for each in documents)
        await self._page.evaluate("(text) => window.streams.at(-1).send(text)", text)


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
        "expires_at": "2026-11-28T09:00:00Z", "replica": "a", "is_retrieved": False, "at": "2026-11-28T07:00:00Z",
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
