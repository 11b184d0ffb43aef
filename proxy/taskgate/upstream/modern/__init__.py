"""Sessions with servers of the modern era (2026-07-28), which have no sessions themselves.

`session.ModernSession` is the session that `upstream.session` creates; its users speak legacy words.
`rounds` runs a call through its rounds of `questions` with `exchanges`, its HTTP and time limits.
`discovery` knows the server and its tools, `subscriptions` its notifications. Tasks that the server
makes of calls: `server_tasks`.
"""
