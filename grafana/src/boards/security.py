"""Security: who is let in, who looks for tasks of others, whether keys are fresh and the audit log is whole."""

from typing import Final

from grafana.src import thresholds
from grafana.src.board import Board, Row
from grafana.src.panels import HALF, Ask, Panel, Shape, Told
from grafana.src.queries import among, grown, now, quantile, rate, select

_AUTH: Final = "taskgate_auth_requests_total"
_DENIALS: Final = "taskgate_task_access_denials_total"

_TOKENS: Final = (
    Panel(
        title="Token checks by result",
        shape=Shape.STACK,
        asks=[Ask(rate(_AUTH, by=["result", "reason"]), "{{result}} {{reason}}")],
        unit="reqps",
        told=Told(
            "requests that had to show a token, accepted or rejected, each by the first reason found.",
            "accepted, a few expired, and missing from hosts that begin without one to learn where to get it.",
            "signature, issuer and audience are tokens that were not made for you; jwks_unavailable is below.",
        ),
        alert="TaskgateAuthFailuresHigh",
    ),
    Panel(
        title="Token rejection ratio",
        asks=[Ask(among(_AUTH, 'result="rejected"', of=['reason!="missing"']), "rejected")],
        unit="percentunit",
        bound=thresholds.AUTH_FAILURES,
        told=Told(
            "the share of tokens that were not good; requests without one count not.",
            "near 0.",
            "one host with an old configuration, an issuer that changed its keys, or somebody who tries.",
        ),
        alert="TaskgateAuthFailuresHigh",
    ),
    Panel(
        title="Token checks by issuer",
        shape=Shape.STACK,
        asks=[Ask(rate(_AUTH, by=["issuer", "result"]), "{{issuer}} {{result}}")],
        unit="reqps",
        told=Told(
            "requests by the issuer of their token; `_OTHER` is none of yours, or no token.",
            "the issuers you know, accepted.",
            "one issuer that is all rejected: its keys or its audience changed.",
        ),
        alert="TaskgateAuthBruteForce",
    ),
    Panel(
        title="Token cache lookups",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_token_cache_lookups_total", by=["result"]), "{{result}}")],
        unit="reqps",
        span=HALF,
        told=Told(
            "whether a token had been found good before: a hit costs no signature check.",
            "mostly hits.",
            "mostly misses are hosts that get a new token for each request, or `auth.token_cache.size` is too small.",
        ),
        alert="TaskgateLatencyHigh",
    ),
    Panel(
        title="Authorization refusals",
        shape=Shape.STACK,
        asks=[
            Ask(rate("taskgate_access_refusals_total", by=["mcp_method_name", "mode"]), "{{mcp_method_name}} {{mode}}")
        ],
        unit="reqps",
        span=HALF,
        told=Told(
            "what `authorization` refused, or would have refused where a rule is in shadow.",
            "few; 0 without rules.",
            "the audit log says who asked, and which rule said no.",
        ),
        alert="TaskgateAuthFailuresHigh",
    ),
)

_PROBING: Final = (
    Panel(
        title="Denied task look-ups by reason",
        asks=[Ask(rate(_DENIALS, by=["reason"]), "{{reason}}")],
        unit="reqps",
        bound=thresholds.ENUMERATION,
        told=Told(
            "look-ups that found no task of the caller's: of somebody else, none, expired, or no id at all. Hosts are "
            "not told which.",
            "a few expired ones.",
            "context_mismatch is somebody with an id of somebody else's task; many not_found is guessing.",
        ),
        alert="TaskgateTaskEnumeration",
    ),
    Panel(
        title="Denied task look-ups by method",
        shape=Shape.STACK,
        asks=[Ask(rate(_DENIALS, by=["upstream", "mcp_method_name"]), "{{upstream}} {{mcp_method_name}}")],
        unit="reqps",
        told=Told(
            "the same, by upstream and method.",
            "near 0.",
            "cancels and updates that are denied are worse than looks: somebody wants to change what is not theirs.",
        ),
        alert="TaskgateCrossContextAccess",
    ),
    Panel(
        title="Security events",
        shape=Shape.STACK,
        asks=[Ask(grown("taskgate_security_events_total", by=["type"]), "{{type}}")],
        unit="short",
        told=Told(
            "patterns that the gateway noticed, each at most once in a while for one caller.",
            "0.",
            "each is an event security.* of the audit log, which names the caller.",
        ),
        alert="TaskgateEnumerationSuspected",
    ),
    Panel(
        title="Penalized callers",
        asks=[Ask(now("taskgate_penalized_contexts"), "penalized")],
        unit="short",
        span=HALF,
        told=Told(
            "callers that may look for no task for a while, since too many of their looks failed.",
            "0.",
            "`auth.lookup_failures` sets how many; one host that lost its ids looks the same as one that guesses.",
        ),
        alert="TaskgateEnumerationSuspected",
    ),
    Panel(
        title="HTTP rejections by reason",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_http_rejections_total", by=["reason"]), "{{reason}}")],
        unit="reqps",
        span=HALF,
        told=Told(
            "requests refused with a status of HTTP, most of them before they were JSON-RPC.",
            "few; session_not_found after a restart.",
            "bad_origin and bad_host are browsers or a wrong name in front; header_mismatch is a request that "
            "contradicts itself.",
        ),
        alert="TaskgateHeaderMismatch",
    ),
)

_FETCHED: Final = "taskgate_jwks_last_success_timestamp_seconds"
_KEYS: Final = (
    Panel(
        title="JWKS age",
        asks=[Ask(f"time() - max by (issuer) ({select(_FETCHED)} > 0)", "{{issuer}}")],
        unit="s",
        bound=thresholds.KEYS_STALE,
        told=Told(
            "how long ago the keys of an issuer were last got; one whose keys were never got is not shown.",
            "below `auth.issuers.*.jwks.refresh`, five minutes.",
            "the issuer does not answer: its old keys serve on, up to a day.",
        ),
        alert="TaskgateJwksStale",
    ),
    Panel(
        title="JWKS keys",
        asks=[Ask(now("taskgate_jwks_keys", by=["issuer"], how="min"), "{{issuer}}")],
        unit="short",
        told=Told(
            "how many keys of an issuer can be used.",
            "1 to 3.",
            "0: no token of that issuer is accepted.",
        ),
        alert="TaskgateJwksFailing",
    ),
    Panel(
        title="JWKS refreshes",
        shape=Shape.STACK,
        asks=[Ask(grown("taskgate_jwks_refreshes_total", by=["issuer", "result"]), "{{issuer}} {{result}}")],
        unit="short",
        told=Told(
            "ok; stale, the last keys serve on; failed, there are none to serve.",
            "ok every few minutes.",
            "see whether the issuer can be reached from here.",
        ),
        alert="TaskgateJwksFailing",
    ),
)

_AUDIT: Final = (
    Panel(
        title="Audit events",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_audit_events_total", by=["event", "outcome"]), "{{event}} {{outcome}}")],
        unit="cps",
        span=HALF,
        told=Told(
            "events by name and outcome, as they are written.",
            "follows the requests: one line for each.",
            "security.* and task.access_denied are what to read first.",
        ),
        alert="TaskgateAuditChainStalled",
    ),
    Panel(
        title="Audit lines dropped, by sink",
        asks=[Ask(grown("taskgate_audit_dropped_total", by=["sink", "reason"]), "{{sink}} {{reason}}")],
        unit="short",
        bound=thresholds.AUDIT_DROPPED,
        span=HALF,
        told=Told(
            "lines that were lost, and why.",
            "0, always.",
            "a full disk, or a sink that is slower than the load; `audit.on_full: deny` refuses requests instead.",
        ),
        alert="TaskgateAuditDropped",
    ),
    Panel(
        title="Audit queue utilization",
        asks=[
            Ask(
                f"{now('taskgate_audit_queue_depth', by=['instance', 'sink'], how='max')} / "
                f"{now('taskgate_audit_queue_limit', by=['instance', 'sink'], how='max')}",
                "{{instance}} {{sink}}",
            )
        ],
        unit="percentunit",
        bound=thresholds.AUDIT_BACKLOG,
        told=Told(
            "lines that wait to be written, as a share of `audit.queue`.",
            "near 0.",
            "the sink is stuck or too slow; when it is full, `audit.on_full` decides.",
        ),
        alert="TaskgateAuditBacklog",
    ),
    Panel(
        title="Audit chain sequence",
        asks=[
            Ask(now("taskgate_audit_chain_sequence", by=["instance", "sink"], how="max"), "{{instance}} {{sink}}"),
        ],
        unit="locale",
        told=Told(
            "the number of the last line of each node and sink: a witness outside of the log.",
            "it only climbs.",
            "a step down means lines are gone: `taskgate audit verify --expect-seq` with the highest number seen here.",
        ),
        alert="TaskgateAuditChainRewound",
    ),
    Panel(
        title="Audit write duration",
        asks=[Ask(quantile(0.99, "taskgate_audit_write_duration_seconds", by=["sink"]), "p99 {{sink}}")],
        unit="s",
        told=Told(
            "the 99th percentile of writing a batch of lines, with its fsync where there is one.",
            "some milliseconds.",
            "a slow disk; requests do not wait for it until the queue is full.",
        ),
        alert="TaskgateAuditBacklog",
    ),
)

BOARD: Final = Board(
    uid="taskgate-security",
    title="taskgate / Security",
    about="Who is let in, whether somebody probes for tasks of others, whether keys are fresh and the audit log whole.",
    rows=(
        Row(title="Tokens and rules", panels=_TOKENS),
        Row(title="Probing", panels=_PROBING),
        Row(title="Keys of issuers", panels=_KEYS),
        Row(title="Audit log", panels=_AUDIT),
    ),
)
