"""The life of a task, from its creation to its purge.

`task_service` creates and cancels tasks, by the operator's rules (`terms`). `runner` has the calls
of tasks in this process; `execution` runs one: `dispatch`, `calling`, `completions`. Every change
of a record goes through `changes`. `inputs`, `offers` and `following` bring a server's questions to
hosts and the answers back; `news` sends status notifications. `checkpoints` and `continuing` resume
a call in another process, and `takeovers` decides which. `leasing` is for a store that replicas
share. `gateway` uses the folder, `wiring` creates its objects.
"""
