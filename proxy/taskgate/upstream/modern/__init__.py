"""Sessions with servers of the modern era (2026-07-28), which have no sessions themselves.

`session.ModernSession` is the session that `http` creates; its users speak legacy words. `rounds`
runs a call through its rounds of questions (`questions`, `open_question`) with `exchanges`, its
HTTP and time limits. `discovery` knows the server, `catalogue` its tools, and `listening` its
notifications (`listen_stream`). Tasks that the server makes of calls: `native`, `followed`,
`follow_ups`, `task_questions`, `task_news`, `late`. `local` answers requests that modern servers
lack.
"""
