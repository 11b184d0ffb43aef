"""A stored task is found by the reference that its lines in the audit log have."""

from pathlib import Path

import pytest

from helpers.gateway.configuration import configuration, file_store
from helpers.gateway.gateway import Gateway
from helpers.server import ScriptedServer, result
from interaction.audit_logs import audited, kept, lines, of


async def ended_task(gateway: Gateway) -> str:
    host = await gateway.greeted()
    task: str = (await host.start("report"))["taskId"]
    await host.until(task, "completed")
    return task


@pytest.mark.parametrize("runs", [1, 2])
async def test_a_stored_task_is_found_by_the_reference_in_the_audit_log(
    server: ScriptedServer, tmp_path: Path, runs: int, caplog: pytest.LogCaptureFixture
) -> None:
    server.script["report"] = result({"content": []})
    config = configuration({"reports": server.url}, folder=tmp_path, audit=audited(tmp_path))
    tasks = []
    for _ in range(runs):
        async with kept(tmp_path, config) as gateway:
            tasks.append(await ended_task(gateway))
    references = [line["task"]["ref"] for line in of(lines(tmp_path), "task.created")]
    by_task = dict(zip(tasks, references, strict=True))
    store = await file_store(tmp_path, reference_of=by_task.__getitem__)
    try:
        assert [await store.referred(reference) for reference in references] == tasks
    finally:
        await store.close()
    # The file has these references already.
    assert "references" not in caplog.text
