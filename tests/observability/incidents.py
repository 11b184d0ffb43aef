"""Incidents that operators have to see, and what each place says of them: the table of docs/operate/causes.md."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """What is wrong, and the text expected of each place where operators look.

    - `what`: the incident in words; `upstream`: the server that it is about, None for none
    - `log`: the message of a line; `doctor`, `readyz`: parts of their output; `alert`: the name of a rule
    - `cause`: what `taskgate upstreams ls` has in the row of the server
    - `later`: when the alert fires, if that is not within a minute by its nature
    - `gateway`: the program that shows it; `scraped`: the one that the alert is about, if it is another
    """

    what: str
    log: str
    doctor: str
    readyz: str
    alert: str
    upstream: str | None = None
    cause: str = ""
    gateway: str = "main"
    scraped: str = ""
    later: str = ""

    @property
    def row(self) -> str:
        """The row of the table in the documentation."""
        cells = (self.what, *(f"`{each}`" for each in (self.log, self.doctor, self.readyz, self.alert)))
        text = f"| {' | '.join(cells)}{self.later} |"
        return text if self.upstream is None else text.replace(f"upstream {self.upstream} ", "upstream NAME ")


def _of_server(what: str, name: str, cause: str, *, is_down: bool) -> Incident:
    return Incident(
        what=what,
        log="an upstream is down" if is_down else "an upstream refuses requests",
        doctor=f"upstream {name} {'is down' if is_down else 'refuses requests'}: {cause}",
        readyz=f'"state":"{"down" if is_down else "refusing"}","cause":"{cause}"',
        alert="TaskgateUpstreamDown" if is_down else "TaskgateUpstreamRefusing",
        upstream=name,
        cause=cause,
    )


INCIDENTS: Final = (
    _of_server("a server is not there", "dead", "connection refused", is_down=True),
    _of_server("it hangs", "hanging", "no answer in time", is_down=True),
    _of_server("it answers 503", "busy", "HTTP 503: the server cannot serve now", is_down=True),
    _of_server("it limits the gateway", "limited", "HTTP 429: the server gets too many requests", is_down=False),
    _of_server(
        "its key was revoked", "revoked", "HTTP 401: the server refuses the gateway's credentials", is_down=False
    ),
    _of_server("a login page is at its URL", "login", "answers text/html, not MCP", is_down=False),
    Incident(
        what="its queue is full",
        log="a limit refuses a caller",
        doctor="upstream full has 1 calls in use, its limit, and 1 wait",
        readyz='"in_use":1,"limit":1,"queued":1',
        alert="TaskgateQueueFull",
        upstream="full",
    ),
    Incident(
        what="its call is stuck",
        log="a task failed without a result of its tool",
        doctor="1 of 32 in use, 0 queued, oldest task",
        readyz='"oldest_task":',
        alert="TaskgateTaskOld",
        later=", after an hour",
        upstream="stuck",
    ),
    Incident(
        what="the keys of an issuer cannot be fetched",
        log="The keys of an issuer could not be fetched",
        doctor="the keys of issuer corp cannot be fetched from",
        readyz='"issuers":{"corp":{"keys":0,',
        alert="TaskgateJwksMissing",
        gateway="guarded",
    ),
    Incident(
        what="the disk of the task store is full",
        log="The task store does not work and no task can be created: the disk is full; free some space",
        doctor="the check store_writes failed",
        readyz='"store_writes":false',
        alert="TaskgateStoreDown",
        gateway="disks",
    ),
    Incident(
        what="the disk of the audit log is full",
        log="the audit log cannot be written; taskgate keeps retrying",
        doctor="the audit log cannot be written to file: No space left on device",
        readyz='"audit":{"file":{"cause":"No space left on device"',
        alert="TaskgateAuditUnwritten",
        gateway="disks",
    ),
    Incident(
        what="a replica was killed",
        log="a replica vanished: others take its tasks over",
        doctor="vanished at",
        readyz='"vanished":{"',
        alert="TaskgateDown",
        gateway="second",
        scraped="first",
    ),
)
