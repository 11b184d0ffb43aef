"""A host on FastMCP 3: calls tools, as tasks or plainly, and answers whatever it is asked meanwhile.

`python host_fastmcp.py URL [--plainly] [--together] TOOL ARGUMENTS …` does what host_python.py does.
"""

import weakref
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.tasks import TaskNotificationHandler
from host_python import Calls, Seen, answer_of, new_seen, numbers, run, tell_of, thought_of
from mcp import types as mcp_types


class Ear(TaskNotificationHandler):
    """Notes what comes, then does what FastMCP does with it."""

    def __init__(self) -> None:
        self.seen = new_seen()

    def belong_to(self, client: Client[Any]) -> None:
        self._client_ref = weakref.ref(client)

    async def dispatch(self, message: Any) -> None:
        if isinstance(message, mcp_types.ServerNotification):
            kind = message.root
            if isinstance(kind, mcp_types.ProgressNotification):
                self.seen["progress"].append(kind.params.progress)
            self.seen["notifications"].append(kind.method)
        await super().dispatch(message)


class NotingClient(Client[Any]):
    """A client that notes everything and answers everything."""

    def __init__(self, url: str) -> None:
        self.ear = Ear()

        async def roots(_: Any) -> list[str]:  # FastMCP takes a function, and no method
            self.ear.seen["questions"].append("roots/list")
            return ["file:///srv/books"]

        super().__init__(
            url,
            elicitation_handler=self._elicit,
            sampling_handler=self._sample,
            sampling_capabilities=mcp_types.SamplingCapability(tools=mcp_types.SamplingToolsCapability()),
            roots=roots,
            log_handler=self._log,
            message_handler=self.ear,
        )
        self.ear.belong_to(self)

    async def _elicit(self, _: str, __: Any, params: Any, ___: Any) -> ElicitResult[Any]:
        self.ear.seen["questions"].append("elicitation/create")
        answer = answer_of(params)
        return ElicitResult(action=answer.action, content=answer.content)

    async def _sample(self, _: Any, params: Any, __: Any) -> Any:
        self.ear.seen["questions"].append("sampling/createMessage")
        return thought_of(params)

    async def _log(self, message: Any) -> None:
        self.ear.seen["logs"].append(message.data.get("msg") if isinstance(message.data, dict) else message.data)

    async def get_task_status(self, task_id: str) -> Any:
        told = await super().get_task_status(task_id)
        self.ear.seen["statuses"].append(told.status)
        return told

    def begin(self) -> Seen:
        self.ear.seen = new_seen()
        return self.ear.seen

    async def as_task(self, tool: str, given: dict[str, Any], seen: Seen) -> mcp_types.CallToolResult:
        """Calls it as a task and lets FastMCP wait for the end, as its users do."""
        token = {"progressToken": f"call {next(numbers)}"}
        task = await self.call_tool(tool, given, task=True, raise_on_error=False, meta=token)
        seen["statuses"].append("immediate" if task.returned_immediately else "working")
        task.on_status_change(lambda status: seen["statuses"].append(status.status))
        result = await task.result()
        return mcp_types.CallToolResult(content=result.content, isError=result.is_error)


async def play(calls: Calls) -> None:
    """One session with these calls."""
    async with NotingClient(calls.url) as client:

        async def call(tool: str, given: dict[str, Any], seen: Seen) -> mcp_types.CallToolResult:
            return await (client.call_tool_mcp(tool, given) if calls.plainly else client.as_task(tool, given, seen))

        await tell_of(calls, client.begin, call, client.ping)


if __name__ == "__main__":
    run(play)
