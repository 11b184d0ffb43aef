"""Admission: the decision whether a request may go on, and the limits that it consumes.

`callers` finds out who asks, `access` what it may do; `mounts` has the servers and `rules` the
present configuration. `rates`, `quota`, `concurrency` and `memory_pressure` are the limits.
`lookups` finds a caller's tasks, with `polls` for their polling and a `lookup_guard` against
guessed ids; `security_alerts` report attackers. `coalescing` joins repeated calls. The gateway,
sessions and the lifecycle are the users.
"""
