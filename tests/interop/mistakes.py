"""What users of released hosts see of the usual mistakes: the table, and its page.

`python -m tests.interop.mistakes` writes `docs/reference/mistakes.md` from `mistakes.json`, which `test_mistakes.py`
holds against what hosts really show; `make mistakes` writes both anew. Nothing of taskgate is known here.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .refusals import KINDS, Kind

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "mistakes.md"
SHOWN: Final = Path(__file__).with_name("mistakes.json")
"""What each host showed in the last run that was to write it, by mistake and host."""
HOSTS: Final = tuple(kind for kind in KINDS if kind.name in ("python", "python-2", "fastmcp-4", "sdk", "client"))
NO_TASKS: Final = "-"
"""Stands for a mistake with tasks at a host that has none."""

Shown = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A mistake; `name` is what the tests call it. `remedy` is a sentence for who made it."""

    name: str
    title: str
    remedy: str
    needs_tasks: bool = False


MISTAKES: Final = (
    Mistake(name="path", title="Wrong path", remedy="Use the path of a mount: `upstreams.*.path`."),
    Mistake(name="host", title="Wrong host name", remedy="Use the public URL, or see `server.allowed_hosts`."),
    Mistake(name="no token", title="No token", remedy="Sign in: the answer names where to get a token."),
    Mistake(name="expired", title="Expired token", remedy="Have the host refresh its token."),
    Mistake(name="audience", title="Token for another audience", remedy="Request one for the resource of the text."),
    Mistake(name="issuer", title="Token of another issuer", remedy="See `auth.issuers`."),
    Mistake(name="scope", title="Missing scope", remedy="Request a token with these scopes."),
    Mistake(name="rule", title="Call that a rule denies", remedy="`taskgate explain` names the rule."),
    Mistake(name="body", title="Body too large", remedy="Send less, or raise `server.max_body`."),
    Mistake(name="rate", title="Too many calls", remedy="Wait for so long, or see `limits.rate`."),
    Mistake(name="queue", title="Too many calls at once", remedy="Call later, or see `upstreams.*.concurrency`."),
    Mistake(name="tasks", title="Too many tasks", remedy="Wait for one, or cancel one.", needs_tasks=True),
    Mistake(name="tool", title="Unknown tool", remedy="Call the tool of the text, or list the tools."),
    Mistake(name="arguments", title="Wrong arguments", remedy="The text is the server's."),
    Mistake(name="task", title="Unknown task", remedy="It has expired, or is not the caller's.", needs_tasks=True),
    Mistake(name="cancelled", title="Task that its host cancelled", remedy="Nothing is to be done.", needs_tasks=True),
    Mistake(
        name="operator",
        title="Task that an operator cancelled",
        remedy="Heed the reason, `statusMessage` of the task.",
        needs_tasks=True,
    ),
    Mistake(name="down", title="Server that is down", remedy="Start it; `taskgate health` shows its state."),
    Mistake(name="refusing", title="Server that answers 401", remedy="See `upstreams.*.credentials`."),
    Mistake(name="html", title="Server that answers with a web page", remedy="Correct `upstreams.*.url`."),
    Mistake(name="store", title="Task without the store", remedy="Start it; other calls go on.", needs_tasks=True),
    Mistake(name="draining", title="Gateway that shuts down", remedy="Call again."),
)


def settled(text: str) -> str:
    """What is shown without what differs from run to run: ports, seconds, ids, links, and a status in later words.

    An error of the protocol is shown without its class, which each SDK names in its own way.
    """
    text = text.partition("\nFor more information check")[0].partition("\n    For further information")[0]
    text = re.sub(r"^(McpError|MCPError|ProtocolError): ", "", text)
    text = text.replace("413 Content Too Large", "413 Request Entity Too Large")
    text = re.sub(r"(server slow)-[^,]+", r"\1", text)
    text = re.sub(r"Task [\w-]{32}(?![\w-])", "Task ID", text)
    text = re.sub(r"(127\.0\.0\.1|localhost):\d+", r"\1", text)
    text = re.sub(r'"retryAfterMs":\d+', '"retryAfterMs":1000', text)
    return re.sub(r"(try again in|expired) \d+ s", r"\1 60 s", text)


def page(shown: Shown) -> str:
    """The page."""
    return "\n".join([_HEAD, *(line for mistake in MISTAKES for line in _section(mistake, shown[mistake.name]))])


def _section(mistake: Mistake, shown: Mapping[str, str]) -> Iterator[str]:
    yield f"## {mistake.title}\n"
    yield f"{mistake.remedy}\n"
    yield "| host | shows |"
    yield "|---|---|"
    texts: dict[str, list[Kind]] = {}
    for kind in HOSTS:
        texts.setdefault(shown[kind.name], []).append(kind)
    for text, kinds in texts.items():
        yield f"| {', '.join(kind.title for kind in kinds)} | {_cell(text)} |"
    yield ""


def _cell(text: str) -> str:
    if text == NO_TASKS:
        return "The host has no tasks."
    line = " ".join(text.split()).replace("|", "\\|")
    return f"`` {line} ``" if "`" in line else f"`{line}`"


_HEAD: Final = """# Mistakes, and what hosts show of them

Each row is the text that a released host gives its user, through taskgate, with its defaults. Many
hosts show the status of HTTP or a text of their own in place of an error's text.
`tests/interop/test_mistakes.py` makes each mistake with each host, and `make mistakes` writes this
page. [Errors](errors.md) has codes and reasons.

Seconds are 60 here, and addresses have no port.
"""


def stored() -> Shown:
    """What hosts showed."""
    found: Shown = json.loads(SHOWN.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    PAGE.write_text(page(stored()), encoding="utf-8")
