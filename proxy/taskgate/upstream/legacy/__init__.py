"""Sessions with servers of the legacy era (2024-11-05 to 2025-11-25).

`session.LegacySession` is the session that `upstream.session` creates. It survives several
connections to its server. `connection` opens them, and `resumption` takes over server sessions of
another process. A connection has a `conversation.Conversation` (requests and questions under one
server session id) and an `event_streams.ServerStream` (the GET stream). Questions of servers:
`questions`, `url_elicitation`. Messages without an answer: `background_posts`. Tasks that the server
makes of calls: `server_tasks`, `task_calls`.
"""
