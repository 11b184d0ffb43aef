"""Sessions with servers of the legacy era (2024-11-05 to 2025-11-25).

`session.HttpSession` is the session that `http` and `session_of_any_era` create. It survives
several connections to its server. A `talk.Talk` is one connection: a `conversation.Conversation`
(requests and questions under one server session id) and a `listening.ServerStream` (the GET
stream). `beginning` opens connections, and `adopting` takes over server sessions of another
process. `exchanges` and `resuming` are the HTTP. Questions of servers: `questions`, `attribution`,
`detours`. Tasks that the server makes of calls: `native`, `following`, `followed`.
"""
