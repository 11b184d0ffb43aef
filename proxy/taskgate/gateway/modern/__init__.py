"""The modern era (revision 2026-07-28): requests without sessions.

`adapter` decodes a request and encodes its reply. `retries` and `remote_retries` continue calls
whose server asked something, `subscriptions` serves `subscriptions/listen`. Upstream sessions are
pooled in `sessions/session_pool`.
"""
