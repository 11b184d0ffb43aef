"""The console of one replica shows the tasks of all, live, and cancels them wherever they run."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from console.visitor import WIDE, Visitor
from helpers.gateway.gateway import Gateway
from helpers.gateway.replicas import serve_replicas
from helpers.server import ScriptedServer, TalkingTool
from helpers.shared_store import SharedServer
from helpers.waiting import bounded, eventually
from interaction.operators import look, tokens

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def three(server: ScriptedServer, valkey_server: SharedServer, tmp_path: Path) -> AsyncIterator[list[Gateway]]:
    """Three gateways over one store, which know the tokens of operators."""
    servers = {"reports": server.url}
    async with serve_replicas(3, servers, valkey_server.options(), tmp_path, admin=tokens(tmp_path)) as gateways:
        yield gateways


async def test_a_task_that_another_replica_runs_appears_moves_and_is_cancelled_there(
    browser: Browser, three: list[Gateway], server: ScriptedServer
) -> None:
    server.script["report"] = tool = TalkingTool()
    async with Visitor.of(browser, three[2], WIDE) as visitor:
        await visitor.sign_in()
        await expect(visitor.page.locator("#live")).to_have_text("live")
        await visitor.page.get_by_label("Status").select_option("all")
        host = await three[0].greeted()
        await host.start("report")
        row = visitor.row("report")
        await expect(row).to_contain_text("working")
        async with bounded():
            await tool.begun.wait()
        for number in (1, 2):
            await tool.note("notifications/progress", progressToken=tool.called.token, progress=number, total=3)
            await expect(row.locator("td").nth(2)).to_have_text(f"{number}/3")
        [item] = (await look(three[0], "/api/v1/tasks?status=working"))["items"]
        await row.get_by_role("link", name="report", exact=True).click()
        details = visitor.page.locator("#view-task")
        await expect(details).to_contain_text(item["replica"])
        await tool.note("notifications/progress", progressToken=tool.called.token, progress=3, total=3)
        await expect(details).to_contain_text("3/3")
        await visitor.page.go_back()
        await row.get_by_role("button", name=re.compile("^Cancel")).click()
        await visitor.page.get_by_role("button", name="Cancel the task", exact=True).click()
        await expect(row).to_contain_text("cancelled")
        await eventually(lambda: server.cancelled == [tool.called.id])
        assert (await look(three[0], f"/api/v1/tasks/{item['reference']}"))["status"] == "cancelled"


async def test_progress_and_a_cancel_at_another_replica_show_on_each_page(
    browser: Browser, three: list[Gateway], server: ScriptedServer
) -> None:
    server.script["report"] = tool = TalkingTool()
    async with Visitor.of(browser, three[1], WIDE) as one, Visitor.of(browser, three[2], WIDE) as other:
        for visitor in (one, other):
            await visitor.sign_in()
            await expect(visitor.page.locator("#live")).to_have_text("live")
            # Else a list that is loaded once the page is connected may leave the ended task out.
            await visitor.page.get_by_label("Status").select_option("all")
        await (await three[0].greeted()).start("report")
        async with bounded():
            await tool.begun.wait()
        for number in (1, 2, 3):
            await tool.note("notifications/progress", progressToken=tool.called.token, progress=number, total=3)
            for visitor in (one, other):
                await expect(visitor.row("report")).to_contain_text(f"{number}/3")
        await one.row("report").get_by_role("button", name=re.compile("^Cancel")).click()
        await one.page.get_by_role("button", name="Cancel the task", exact=True).click()
        for visitor in (one, other):
            await expect(visitor.row("report")).to_contain_text("cancelled")
