"""Supervisor process ("nursery"): it starts servers' programs, and ends them after the gateway.

`program` is the process, `children` its children, `process_tree` the process trees of Linux, `timers`
its timers. `messages` has the messages between it and the gateway (`supervisor_client`). It uses the
standard library only and has one thread: it must be small, and outlive the gateway.
"""
