"""The legacy era, 2024-11-05 to 2025-11-25, between text and the values of `protocol`.

`downstream` is the dialect for hosts: `tasks`, `listing` and `results` read and write its parts.
`upstream` is the dialect for servers. `questions` and `capabilities` are for both sides. The
composition root is the only user.
"""
