"""Security: accepted and rejected tokens, probes for tasks of other callers, keys, and the audit log."""

from typing import Final

from grafana.src import thresholds
from grafana.src.board import Board, Row
from grafana.src.panels import HALF, Ask, Guidance, Panel, Shape
from grafana.src.queries import among, grown, now, quantile, rate, select

_AUTH: Final = "taskgate_auth_requests_total"
_DENIALS: Final = "taskgate_task_access_denials_total"

_TOKENS: Final = (
    Panel(
        title="Token checks by result",
        shape=Shape.STACK,
        asks=[Ask(rate(_AUTH, by=["result", "reason"]), "{{result}} {{reason}}")],
        unit="reqps",
        guidance=Guidance(
            "requests that need a token, accepted or rejected, by the first reason found.",
            "accepted; a few expired; missing from hosts that first ask where to get a token.",
            "signature, issuer and audience: tokens for another service. jwks_unavailable: see below.",
        ),
        alert="TaskgateAuthFailuresHigh",
    ),
    Panel(
        title="Token rejection ratio",
        asks=[Ask(among(_AUTH, 'result="rejected"', of=['reason!="missing"']), "rejected")],
        unit="percentunit",
        bound=thresholds.AUTH_FAILURES,
        guidance=Guidance(
            "the share of rejected tokens, without requests that had none.",
            "near 0.",
            "a host with an old configuration, an issuer with new keys, or an attack.",
        ),
        alert="TaskgateAuthFailuresHigh",
    ),
    Panel(
        title="Token checks by issuer",
        shape=Shape.STACK,
        asks=[Ask(rate(_AUTH, by=["issuer", "result"]), "{{issuer}} {{result}}")],
        unit="reqps",
        guidance=Guidance(
            "requests by the issuer of their token; `_OTHER` is an unknown issuer, or no token.",
            "the configured issuers, accepted.",
            "all tokens of one issuer rejected: its keys or its audience changed.",
        ),
        alert="TaskgateAuthBruteForce",
    ),
    Panel(
        title="Token cache lookups",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_token_cache_lookups_total", by=["result"]), "{{result}}")],
        unit="reqps",
        span=HALF,
        guidance=Guidance(
            "whether the cache had the result for a token: a hit needs no signature check.",
            "mostly hits.",
            "mostly misses: hosts get a new token for each request, or `auth.token_cache.size` is too small.",
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
        guidance=Guidance(
            "requests that `authorization` refused, or would have refused for a rule in shadow.",
            "few; 0 without rules.",
            "the audit log names the caller and the rule.",
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
        guidance=Guidance(
            "look-ups that found no task of the caller: a task of another caller, none, an expired one, or an "
            "invalid id. Hosts get the same answer for all.",
            "a few expired ones.",
            "context_mismatch: a caller has the id of another caller's task. Many not_found: a caller guesses ids.",
        ),
        alert="TaskgateTaskEnumeration",
    ),
    Panel(
        title="Denied task look-ups by method",
        shape=Shape.STACK,
        asks=[Ask(rate(_DENIALS, by=["upstream", "mcp_method_name"]), "{{upstream}} {{mcp_method_name}}")],
        unit="reqps",
        guidance=Guidance(
            "denied look-ups, by upstream and method.",
            "near 0.",
            "denied cancels and updates are worse than polls: a caller tries to change tasks of another.",
        ),
        alert="TaskgateCrossContextAccess",
    ),
    Panel(
        title="Security events",
        shape=Shape.STACK,
        asks=[Ask(grown("taskgate_security_events_total", by=["type"]), "{{type}}")],
        unit="short",
        guidance=Guidance(
            "suspicious patterns, each at most once in a while for one caller.",
            "0.",
            "each is a security.* event of the audit log, which names the caller.",
        ),
        alert="TaskgateEnumerationSuspected",
    ),
    Panel(
        title="Penalized callers",
        asks=[Ask(now("taskgate_penalized_contexts"), "penalized")],
        unit="short",
        span=HALF,
        guidance=Guidance(
            "callers with a penalty: too many of their look-ups failed, so they can find no task for a while.",
            "0.",
            "`auth.lookup_failures` sets the number; a host that lost its ids looks like one that guesses.",
        ),
        alert="TaskgateEnumerationSuspected",
    ),
    Panel(
        title="HTTP rejections by reason",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_http_rejections_total", by=["reason"]), "{{reason}}")],
        unit="reqps",
        span=HALF,
        guidance=Guidance(
            "requests refused with an HTTP status, most of them before they were JSON-RPC.",
            "few; session_not_found after a restart.",
            "bad_origin and bad_host: browsers, or a wrong name in a proxy. header_mismatch: headers contradict "
            "the body.",
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
        guidance=Guidance(
            "the time since the last successful fetch of an issuer's keys. An issuer without a fetch is not shown.",
            "below `auth.issuers.*.jwks.refresh`, five minutes.",
            "the issuer does not respond: its old keys remain in use, up to a day.",
        ),
        alert="TaskgateJwksStale",
    ),
    Panel(
        title="JWKS keys",
        asks=[Ask(now("taskgate_jwks_keys", by=["issuer"], how="min"), "{{issuer}}")],
        unit="short",
        guidance=Guidance(
            "the number of usable keys of an issuer.",
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
        guidance=Guidance(
            "ok; stale (the last keys remain in use); failed (there are no keys).",
            "ok every few minutes.",
            "check whether the issuer can be reached from the gateway.",
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
        guidance=Guidance(
            "events by name and outcome, as they are written.",
            "follows the requests: one line for each.",
            "read security.* and task.access_denied first.",
        ),
        alert="TaskgateAuditChainStalled",
    ),
    Panel(
        title="Audit lines dropped, by sink",
        asks=[Ask(grown("taskgate_audit_dropped_total", by=["sink", "reason"]), "{{sink}} {{reason}}")],
        unit="short",
        bound=thresholds.AUDIT_DROPPED,
        span=HALF,
        guidance=Guidance(
            "lost lines, by reason.",
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
        guidance=Guidance(
            "lines that wait to be written, as a share of `audit.queue`.",
            "near 0.",
            "the sink is blocked or too slow; when its queue is full, `audit.on_full` decides.",
        ),
        alert="TaskgateAuditBacklog",
    ),
    Panel(
        title="Audit chain sequence",
        asks=[
            Ask(now("taskgate_audit_chain_sequence", by=["instance", "sink"], how="max"), "{{instance}} {{sink}}"),
        ],
        unit="locale",
        guidance=Guidance(
            "the number of the last line of each node and sink, stored outside of the log.",
            "only rises.",
            "a step down means missing lines: run `taskgate audit verify --expect-seq` with the highest number "
            "shown here.",
        ),
        alert="TaskgateAuditChainRewound",
    ),
    Panel(
        title="Audit write duration",
        asks=[Ask(quantile(0.99, "taskgate_audit_write_duration_seconds", by=["sink"]), "p99 {{sink}}")],
        unit="s",
        guidance=Guidance(
            "the 99th percentile of a write of lines, with its fsync if there is one.",
            "some milliseconds.",
            "a slow disk; requests do not wait for it until the queue is full.",
        ),
        alert="TaskgateAuditBacklog",
    ),
)

BOARD: Final = Board(
    uid="taskgate-security",
    title="taskgate / Security",
    about="Accepted and rejected tokens, probes for tasks of other callers, age of keys, and state of the audit log.",
    rows=(
        Row(title="Tokens and rules", panels=_TOKENS),
        Row(title="Probing", panels=_PROBING),
        Row(title="Audit log", panels=_AUDIT, leads_to="taskgate-runtime"),
        Row(title="Keys of issuers", panels=_KEYS, is_closed=True),
    ),
)
