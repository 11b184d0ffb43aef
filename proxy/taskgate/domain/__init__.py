"""The domain: what a task is, and the operator's rules as pure decisions.

Tasks: `record` is the stored state, `events` are what can happen to it, `machine` makes the
transitions. `listing` and `cursors` are the pages of `tasks/list`, `request_state` seals what
modern hosts send back with a retry. Rules: `policy` (which calls become tasks), `rates`, `limits`
(caps, and other limits for some callers), `polling`. Algorithms: `breaker`, `fair_queue`.
`versions` has the protocol revisions. Every other folder but `jsontext` and `system` uses these;
all is values and functions of values, so clocks, stores and the wire are elsewhere.
"""
