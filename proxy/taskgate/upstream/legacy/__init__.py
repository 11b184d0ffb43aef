"""Sessions with servers of the legacy era (2024-11-05 to 2025-11-25).

`session.HttpSession` is the session that `http` and `session_of_any_era` create. It survives
several connections to its server. A `talk.Talk` is one of them: a `conversation.Conversation`
(requests and questions under one server session id) and a `listening.ServerStream` (the GET
stream). `beginning` opens one and `adopting` resumes one of another process. `exchanges` and
`resuming` are its HTTP. Questions: `questions`, `attribution`, `detours`. Tasks that the server
makes of calls: `native`, `following`, `followed`.
"""
