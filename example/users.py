"""Two users, alice and bob, of a taskgate that asks for tokens: `python example/users.py URL`.

Each finds the issuer as any host would, by what taskgate answers to a request without a token. What is shown then: a
task is its owner's alone, and a rule keeps a tool from who lacks a scope. Ends with 1 as soon as something differs.
"""

import argparse
import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from host import PATIENCE, Unexpected, expect, first_of, poll_to_the_end, start, text_of

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
NOT_FOUND = -32602
CLIENT = "example"


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with a session of their own, and the HTTP client that carries their token."""

    name: str
    host_session: ClientSession
    http: httpx.AsyncClient
    session_headers: dict[str, str]


async def show_all(url: str) -> None:
    """Every step in its order. Raises Unexpected or McpError at the first one that goes wrong."""
    async with plain_client() as http:
        place = await show_refusal(http, url)
        resource, token_endpoint = await show_discovery(http, place)
        expect(resource == url, f"the metadata should be that of {url}, but it is that of {resource}")
        tokens = [await token_of(http, token_endpoint, name, resource) for name in ("alice", "bob")]
    async with signed_in("alice", url, tokens[0]) as alice, signed_in("bob", url, tokens[1]) as bob:
        task_id = await show_own_task(alice)
        await show_foreign_task(bob, task_id)
        await show_lists(alice, bob, task_id)
        await show_rule(alice, bob, url)
    print("\nEverything went as expected.", flush=True)


# --- how to be let in ------------------------------------------------------------------------------------------------


async def show_refusal(http: httpx.AsyncClient, url: str) -> str:
    """A request without a token; returns where the refusal says that the metadata is."""
    answer = await http.post(url, headers=HEADERS, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
    challenge = answer.headers.get("WWW-Authenticate", "")
    print(f"A request without a token: {answer.status_code}\n  WWW-Authenticate: {challenge}", flush=True)
    expect(answer.status_code == 401, "that should have been 401")
    named = re.search(r'resource_metadata="([^"]+)"', challenge)
    if named is None:
        raise Unexpected("the refusal should say where the metadata is")
    return named[1]


async def show_discovery(http: httpx.AsyncClient, place: str) -> tuple[str, str]:
    """From the metadata to the issuer's; returns what tokens are for, and where they are had."""
    resource = (await http.get(place)).raise_for_status().json()
    issuer = resource["authorization_servers"][0]
    metadata = (await http.get(f"{issuer}/.well-known/oauth-authorization-server")).raise_for_status().json()
    print(f"  there: tokens are issued by {issuer}\n  there: at {metadata['token_endpoint']}", flush=True)
    return resource["resource"], metadata["token_endpoint"]


async def token_of(http: httpx.AsyncClient, endpoint: str, name: str, resource: str) -> str:
    """A token for that user."""
    who = {"username": name, "password": name, "client_id": CLIENT}
    answer = await http.post(endpoint, data={"grant_type": "password", "resource": resource, **who})
    issued: dict[str, Any] = answer.raise_for_status().json()
    print(f"{name} has a token with scope: {issued['scope']}", flush=True)
    return str(issued["access_token"])


def plain_client(**headers: str) -> httpx.AsyncClient:
    """An HTTP client that goes through no proxy, and waits as long as a held answer may take."""
    return httpx.AsyncClient(headers=headers, timeout=PATIENCE, trust_env=False)


@asynccontextmanager
async def signed_in(name: str, url: str, token: str) -> AsyncIterator[User]:
    """The user, with a session over the official SDK whose every request carries the token."""
    async with (
        plain_client(Authorization=f"Bearer {token}") as http,
        streamable_http_client(url, http_client=http) as (incoming, outgoing, session_id),
        ClientSession(incoming, outgoing) as host_session,
    ):
        greeting = await host_session.initialize()
        revision = str(greeting.protocolVersion)
        session_headers = {"Mcp-Session-Id": session_id() or "", "MCP-Protocol-Version": revision}
        yield User(name, host_session, http, session_headers)


# --- what is whose ---------------------------------------------------------------------------------------------------


async def show_own_task(user: User) -> str:
    """A report of the user's own; returns the task's id."""
    print(f"\n{user.name} asks for a report:", end="", flush=True)
    task_id = await start(user.host_session, "generate_report", quarter="Q3", seconds=2.0)
    last = await poll_to_the_end(user.host_session, task_id)
    expect(last.status == "completed", f"the report should be completed, but it is {last.status}")
    result = await user.host_session.experimental.get_task_result(task_id, CallToolResult)
    print(f"  result: {text_of(result)}", flush=True)
    return task_id


async def show_foreign_task(user: User, task_id: str) -> None:
    """Somebody else's task, and one that never was: the same answer."""
    answers = [await refusal_of(user, each) for each in (task_id, "A" * len(task_id))]
    print(f"\n{user.name} asks for that task:             error {answers[0]}")
    print(f"{user.name} asks for one that never was: error {answers[1]}", flush=True)
    expect(answers[0] == answers[1] == f"{NOT_FOUND}, Task not found", "both should be answered as not found")


async def refusal_of(user: User, task_id: str) -> str:
    """The error that tasks/get of that task brings. Raises Unexpected where it brings the task."""
    try:
        await user.host_session.experimental.get_task(task_id)
    except McpError as refusal:
        return f"{refusal.error.code}, {refusal.error.message}"
    raise Unexpected(f"{user.name} should not see that task")


async def show_lists(alice: User, bob: User, task_id: str) -> None:
    """Each list has what is its owner's, and nothing else."""
    print("\nbob asks for a report too:", end="", flush=True)
    other = await start(bob.host_session, "generate_report", quarter="Q4", seconds=0.5)
    for user, own, foreign in ((alice, task_id, other), (bob, other, task_id)):
        listed = [task.taskId for task in (await user.host_session.experimental.list_tasks()).tasks]
        told = "has it" if own in listed else "lacks it"
        print(f"  the list of {user.name}'s tasks: {len(listed)} of them, {told}", flush=True)
        expect(own in listed, f"{user.name}'s list should have {user.name}'s task")
        expect(foreign not in listed, f"{user.name}'s list should not have the other's task")


async def show_rule(alice: User, bob: User, url: str) -> None:
    """broken_report needs the scope reports.admin, which bob has."""
    print("\nA rule: broken_report needs the scope reports.admin.")
    for user, may in ((alice, False), (bob, True)):
        shown = "broken_report" in {tool.name for tool in (await user.host_session.list_tools()).tools}
        print(f"  the list of {user.name}'s tools {'has' if shown else 'lacks'} it", flush=True)
        expect(shown is may, f"{user.name}'s list of tools should {'have' if may else 'lack'} it")
    call = {"name": "broken_report", "arguments": {"quarter": "Q1"}}
    body = {"jsonrpc": "2.0", "id": "by hand", "method": "tools/call", "params": call}
    answer = await alice.http.post(url, headers=HEADERS | alice.session_headers, json=body)
    challenge = answer.headers.get("WWW-Authenticate", "")
    print(f"  alice calls it all the same: {answer.status_code}\n    WWW-Authenticate: {challenge}", flush=True)
    expect(answer.status_code == 403, "that should have been 403")
    expect('scope="reports.admin"' in challenge, "the refusal should name the scope")


# --- all of it -------------------------------------------------------------------------------------------------------


async def request_context(url: str) -> int:
    """Goes through all steps; returns the exit status."""
    try:
        async with asyncio.timeout(PATIENCE):
            await show_all(url)
    except* TimeoutError:
        reason = f"not done after {PATIENCE:.0f} seconds"
    except* Exception as group:
        reason = first_of(group)
    else:
        return 0
    print(f"\nNot as expected: {reason}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Use taskgate as alice and as bob, with a token each.")
    parser.add_argument("url", help="where taskgate serves, such as http://127.0.0.1:8080/mcp")
    sys.exit(asyncio.run(request_context(parser.parse_args().url)))
