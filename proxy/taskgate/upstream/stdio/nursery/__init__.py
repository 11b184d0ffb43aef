"""Supervisor process ("nursery"): it starts servers' programs, and ends them after the gateway.

`program` is the process, `wards` its children, `kinship` the process trees of Linux, `timetable`
its timers. `words` has the messages between it and the gateway (`stdio.nursing`). It uses the
standard library only and has one thread: it must be small, and outlive the gateway.
"""
