"""The console shows what the gateway streams, without a stand-in."""

import pytest
from playwright.async_api import expect

from console.visitor import Visitor
from helpers.gateway.gateway import Gateway
from helpers.server import Hold, ScriptedServer
from interaction.operators import act
from interaction.reloads import DONE

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_tasks_load_and_refusals_are_shown_as_they_happen(
    visitor: Visitor, gateway: Gateway, server: ScriptedServer
) -> None:
    server.script["report"] = hold = Hold()
    host = await gateway.greeted()
    await visitor.sign_in()
    await expect(visitor.page.locator("#live")).to_have_text("live")
    await host.start("report")
    rows = visitor.page.locator("#task-rows tr[data-key]")
    await expect(rows.locator("th a")).to_have_text(["report"])
    hold.release(DONE)
    await expect(rows).to_have_count(0)
    await act(gateway, "/api/v1/upstreams/reports/hold")
    await visitor.page.get_by_role("link", name="Refusals").click()
    await expect(visitor.page.locator("#refusal-rows")).to_contain_text("No request was refused.")
    await host.call("report")
    await expect(visitor.page.locator("#refusal-rows tr").first).to_contain_text("held")
    await visitor.page.get_by_role("link", name="Callers").click()
    await expect(visitor.page.locator("#caller-rows")).to_contain_text("tasks_per_context")
