"""Who may use how much: rates, room for tasks, turns at a server, polls, and calls that are made twice."""
