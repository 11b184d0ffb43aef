"""The modern era, 2026-07-28, between text and the values of `protocol`.

`downstream` is the dialect for hosts, `upstream` the dialect for servers. `requests` prepares
requests on both sides, `results` converts responses. `rounds` has questions and answers, `tasks`
the gateway's tasks, `capabilities` what each side can do. The composition root is the only user.
"""
