"""The task stores: where task records, host sessions and rate budgets are stored.

`base` has the protocols of every store: `TaskStore`, `SessionStore`, `RateStore` and `Store`.
`shared` has those of a store that several gateways use at once. The implementations are `memory`,
`sqlite` and `redis`; `open` opens the configured one. The lifecycle of tasks, host sessions and
admission are the users. A store promises atomicity and visibility; it makes no decision about a
task.
"""
