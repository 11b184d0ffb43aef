"""The handling of the modern era (revision 2026-07-28): requests without sessions.

`requests` decodes a request and passes it to `calls` (tool calls and everything for a server),
`task_requests` (`tasks/get`, `update`, `cancel`) or `subscriptions` (`subscriptions/listen`). A
call may wait for a permit (`gateway/outbound_calls`), run beyond its request (`flights`), or become a task
(`promotion`). It may also be held until its host sends input responses (`holds`, `rounds`,
`remote_retry`). Upstream sessions are pooled in `session_pool`.
"""
