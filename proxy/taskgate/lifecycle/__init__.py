"""The life of a task, from its creation to its purge.

A task is a record in the store, and a call to a server that one process runs. The record is stored
first. Then the call waits for a permit, is marked as dispatched, and is sent. The server may ask
questions meanwhile. The task ends once: with a result, a failure or a cancellation, which is stored
in the record. Hosts fetch it until the record expires. If the process is gone before the end,
another one sends the call again, resumes it, or ends the task as lost.

`task_service` creates and cancels tasks, by the operator's rules. `runner` has the calls of tasks in
this process, and `task_run` is the story of one. Every change of a record goes through `transitions`.
`inputs`, `input_delivery` and `result_wait` bring a server's questions to hosts and the answers
back; `status_notifications` tells hosts of changes. A call is resumed in another process from its
`checkpoints`, and `recovery` decides which. `leases` is for a store that replicas share. `gateway`
uses the folder, `wiring` creates its objects.
"""
