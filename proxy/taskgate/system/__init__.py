"""The services of the process: tasks, timers, threads, files and file descriptors.

`background` runs tasks without a waiting caller, `cancel_scope` a block that others may cancel.
`timer_wheel` has many timeouts of one length, `offload` runs long work in a thread. `event_loop`
chooses the event loop. `descriptors` shares out file descriptors, `secret_files` checks who can read
a file, `log_throttle` limits repeated log lines. `keep_alive` has silent connections probed.
`allocator` keeps freed memory, or gives it back. Every folder above may use them.
"""
