"""An hour of a gateway with one incident, as the API tells of it: the key of one of three servers was revoked."""

import re
from datetime import UTC, datetime, timedelta
from math import cos, sin
from typing import Any

from playwright.async_api import Page, Route

from console.standins import answer

NOW = datetime(2026, 11, 28, 4, 40, 6, tzinfo=UTC)
REVOKED = NOW - timedelta(seconds=52)
CAUSE = "HTTP 401: the server refuses the gateway's credentials"
PEOPLE = {
    name: {"caller": f"c_{name * 3:.16}", "issuer": "corp", "subject": name, "client": "agent-a", "tenant": tenant}
    for name, tenant in (("alice", "acme"), ("bob", "acme"), ("carol", "acme"), ("mallory", "globex"))
}


def ago(**parts: float) -> str:
    """The time so long before now."""
    return (NOW - timedelta(**parts)).isoformat().replace("+00:00", "Z")


def wave(level: float, swing: float, turn: float) -> list[int]:
    """A number for each minute, which goes up and down around a level."""
    return [
        max(0, round(level + swing * (sin(minute / turn) + 0.6 * cos(minute * 1.7 + turn)))) for minute in range(60)
    ]


def upstream(name: str, server: str, **changes: Any) -> dict[str, Any]:
    """A server as the API shows it."""
    return {
        "name": name, "path": f"/{name}/mcp", "server": server, "state": "up", "cause": None, "since": None,
        "recent_requests": 240, "recent_failures": 0, "is_up": True, "circuit": "closed", "circuit_reason": None,
        "is_held": False, "calls": 3, "limit": 32, "waiting": 0, "reserved": 0, "lent": 0, "tasks": 2, "requests": 3,
        "processes": None, "offers_tasks": False,
    } | changes  # fmt: skip


def task(number: int, tool: str, who: str, server: str, **changes: Any) -> dict[str, Any]:
    """A task as the API lists it."""
    return {
        "reference": f"t_{'MRMY14r1p2WUpwo9q56VQR'[:-2]}{number:02d}", "upstream": server, "tool": tool,
        "status": "working", "tool_error": False, "reason": None, "is_queued": False, "queue_position": None,
        "progress": None, **PEOPLE[who], "created_at": ago(minutes=3), "updated_at": ago(seconds=3),
        "expires_at": ago(minutes=-57), "replica": "gw-1", "is_retrieved": False,
    } | changes  # fmt: skip


UPSTREAMS = {
    "replica": "gw-1",
    "items": [
        upstream(
            "orders", "http://orders.internal", state="refusing", cause=CAUSE, since=ago(seconds=52), calls=0,
            recent_requests=28, recent_failures=27,
        ),
        upstream("reports", "http://reports.internal", calls=12, waiting=6, tasks=11),
        upstream("tickets", "tickets-server", limit=8, processes=4),
    ],
}  # fmt: skip
_HOURS = {"orders": wave(60, 9, 3), "reports": wave(110, 14, 5), "tickets": wave(40, 16, 4)}
_FAILED = [0] * 59 + [27]
HISTORY = {
    "now": ago(),
    "replica": "gw-1",
    "requests": [sum(minute) for minute in zip(*_HOURS.values(), strict=True)],
    "failures": _FAILED,
    "refusals": [*[0] * 45, *wave(5, 3, 2)[:15]],
    "unfinished": [*wave(30, 6, 6)[:-1], 38],
    "waiting": [*wave(4, 4, 5)[:-1], 6],
    "p95_seconds": [float(each) for each in wave(8, 1, 4)],
    "recent_p95_seconds": 8.4,
    "upstreams": [
        {
            "name": name, "requests": hour, "failures": _FAILED if name == "orders" else [0] * 60,
            "recent_p95_seconds": {"orders": 0.1, "reports": 12.0, "tickets": 1.1}[name],
        }
        for name, hour in _HOURS.items()
    ],
}  # fmt: skip
RUNNING = [
    task(1, "reindex", "carol", "orders", created_at=ago(minutes=51), updated_at=ago(minutes=47)),
    task(2, "export_orders", "bob", "reports", progress="57/100: rows", updated_at=ago(seconds=3)),
    task(3, "generate_report", "alice", "reports", is_queued=True, queue_position=2, updated_at=ago(seconds=41)),
    task(4, "close_tickets", "mallory", "tickets", status="input_required", updated_at=ago(minutes=2)),
]
REFUSED = {"status": "failed", "reason": "refused"}
FETCHED = {"status": "completed", "is_retrieved": True}
ENDED = [
    task(5, "find_order", "bob", "orders", **REFUSED, created_at=ago(seconds=2), updated_at=ago(seconds=1)),
    task(6, "export_orders", "alice", "orders", **REFUSED, created_at=ago(seconds=3), updated_at=ago(seconds=2)),
    task(7, "generate_report", "carol", "reports", **FETCHED, created_at=ago(seconds=17), updated_at=ago(seconds=5)),
    task(8, "charge_card", "bob", "reports", **FETCHED, tool_error=True, reason="tool_error",
         created_at=ago(seconds=620), updated_at=ago(seconds=524.6)),
]  # fmt: skip
REFUSALS = {
    "now": ago(),
    "replica": "gw-1",
    "left_out": 0,
    "items": [
        {"at": ago(seconds=8), "kind": "rate", **PEOPLE["mallory"], "address": "192.0.2.0/24", "upstream": "tickets",
         "tool": None, "reason": "calls", "count": 14},
    ],
}  # fmt: skip
CALLERS = {
    "now": ago(),
    "replica": "gw-1",
    "is_complete": True,
    "next": None,
    "items": [
        {**PEOPLE[who], "limits": [
            {"limit": "tasks_per_context", "upstream": None, "used": tasks, "most": 10, "is_shared": True},
            {"limit": "calls_per_context", "upstream": "reports", "used": calls, "most": 16, "is_shared": False},
        ]}
        for who, tasks, calls in (("alice", 4, 2), ("bob", 2, 1), ("carol", 1, 1), ("mallory", 10, 9))
    ],
}  # fmt: skip
DETAIL = {
    **ENDED[3],
    "timeline": [
        {"status": "working", "time": ENDED[3]["created_at"]},
        {"status": "completed", "time": ENDED[3]["updated_at"]},
    ],
    "dispatched_at": ago(seconds=524.8),
    "lease": None, "failure": None, "host": {"name": "claude-code", "version": "2.1", "revision": "2025-11-25"},
    "questions": [], "poll_interval_seconds": 1.0, "reruns_left": 0, "is_resumable": False,
    "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "may_show_payload": True,
}  # fmt: skip


async def tell(page: Page) -> None:
    """Have the API of a page tell the story, and the page take its moment as now."""

    async def answer_tasks(route: Route) -> None:
        address = route.request.url
        if "/tasks?" not in address:
            return await route.fulfill(json=DETAIL)
        ended, unfinished = "completed" in address or "status=failed" in address, "working" in address
        items = [*(RUNNING if unfinished or not ended else []), *(ENDED if ended or not unfinished else [])]
        await route.fulfill(json={"now": ago(), "items": items, "next": None, "is_complete": True})
        return None

    told = {"upstreams": UPSTREAMS, "history": HISTORY, "refusals?*": REFUSALS, "callers?*": CALLERS}
    for path, document in told.items():
        await answer(page, path, document)
    await page.route(re.compile(r"/api/v1/tasks[/?]"), answer_tasks)
    await page.route("**/readyz?verbose", lambda route: route.fulfill(json={"checks": {"store": True}}))
