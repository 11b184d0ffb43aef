"""The console shows the payload of a task as text, to an operator who asks, where the configuration allows it."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Locator, expect

from console.standins import EventStream
from console.visitor import NARROW, WIDE, Visitor
from helpers.gateway.configuration import GatewayConfig, configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.server import Hold, ScriptedServer, result
from interaction.audit_logs import audited, lines, of
from interaction.operators import act, tokens
from requirements import covers

pytestmark = pytest.mark.asyncio(loop_scope="session")

MARKUP = '<img src=x onerror="document.title=1"><script>document.title=2</script>\u202eevil'
SHOWN = 20_000
COPIES = ["Copy the link", "Copy as CLI"]


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(server: ScriptedServer, tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway that shows payloads until it is told to reload."""

    def config(payloads: bool) -> GatewayConfig:
        admin = {**tokens(tmp_path), "payloads": payloads}
        return configuration({"reports": server.url}, admin=admin, audit=audited(tmp_path))

    async with serve(config(True), data_directory=tmp_path, source=lambda: config(False)) as gateway:
        yield gateway


async def opened(visitor: Visitor, name: str = "ops") -> Locator:
    """The page of the only task, after a sign-in."""
    await visitor.sign_in(name)
    await visitor.page.get_by_label("Status").select_option("all")
    await visitor.page.locator("#task-rows th a").click()
    shown = visitor.page.locator("#view-task")
    await expect(shown.locator("#task-events tr").first).to_be_visible()
    return shown


async def looks(tmp_path: Path) -> list[dict[str, Any]]:
    return [line for line in of(lines(tmp_path), "admin.request") if line["http"]["path"].endswith("/payload")]


@covers("T36")
async def test_a_payload_is_text_and_never_markup_with_its_own_numbers(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor
) -> None:
    server.script["report"] = result({"content": [{"type": "text", "text": MARKUP}]})
    await (await gateway.greeted()).start("report", {"big": 12345678901234567890, "text": MARKUP})
    shown = await opened(visitor)
    await expect(shown.locator("#task-payload")).to_be_hidden()
    await shown.get_by_role("button", name="Show payload").click()
    arguments = shown.get_by_role("region", name="arguments")
    written = json.dumps(MARKUP, ensure_ascii=False).replace("\u202e", r"\u202e")
    await expect(arguments).to_have_text(re.compile(r'"big": 12345678901234567890,\s+"text": ' + re.escape(written)))
    await expect(shown.get_by_role("region", name="result")).to_contain_text(r"\u202eevil")
    await expect(shown).to_contain_text("error: none")
    await expect(shown).to_contain_text("This look is in the audit log.")
    assert await visitor.page.locator("main img, main script").count() == 0
    assert await visitor.page.title() == "report - taskgate console"
    await visitor.page.go_back()
    await expect(shown).to_be_hidden()
    assert MARKUP[:20] not in await visitor.page.locator("#task-payload").inner_text()


async def test_a_long_payload_is_cut_visibly_and_each_look_is_one_line(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor, tmp_path: Path
) -> None:
    server.script["report"] = hold = Hold()
    await (await gateway.greeted()).start("report", {"text": "x" * 2 * SHOWN})
    shown = await opened(visitor)
    await shown.get_by_role("button", name="Show payload").click()
    await expect(shown).to_contain_text(re.compile(rf"Cut: the first {SHOWN} of 400\d\d characters are shown."))
    assert len(await shown.get_by_role("region", name="arguments").inner_text()) == SHOWN
    await expect(shown).to_contain_text("result: the task has not ended")
    # Live updates of the task are no further looks.
    hold.release({"content": []})
    await expect(shown.locator("#task-events tr")).to_have_count(2)
    assert len(await looks(tmp_path)) == 1


async def test_the_payload_of_a_task_fits_the_window_and_axe_finds_nothing_serious(
    browser: Browser, gateway: Gateway, server: ScriptedServer
) -> None:
    await (await gateway.greeted()).start("report", {"text": "word" * 200})
    for size in (NARROW, WIDE):
        async with Visitor.of(browser, gateway, size, "dark") as visitor:
            shown = await opened(visitor)
            await shown.get_by_role("button", name="Show payload").click()
            await expect(shown.get_by_role("region", name="arguments")).to_be_visible()
            found = (await Axe().run(visitor.page)).response["violations"]
            assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
            assert await visitor.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


async def test_a_viewer_sees_no_button_for_payloads(gateway: Gateway, visitor: Visitor) -> None:
    await (await gateway.greeted()).start("echo")
    shown = await opened(visitor, "looks")
    await expect(shown.get_by_role("button")).to_have_text(COPIES)


async def test_without_admin_payloads_nobody_sees_a_button_and_a_look_is_refused(
    gateway: Gateway, visitor: Visitor
) -> None:
    await (await gateway.greeted()).start("echo")
    # Without a stream that opens, the page does not read the task again, and the button stays.
    await EventStream.of(visitor.page)
    shown = await opened(visitor)
    assert (await act(gateway, "/api/v1/reload"))[0] == 200
    await shown.get_by_role("button", name="Show payload").click()
    await expect(shown).to_contain_text("no payload is shown: admin.payloads is false in the configuration")
    await visitor.page.reload()
    await expect(shown.get_by_role("button")).to_have_text(COPIES)
