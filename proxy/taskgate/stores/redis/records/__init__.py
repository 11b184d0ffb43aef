"""The task records in Redis or Valkey: `store.RedisStore`, the whole Store of a shared deployment.

`rows` has the layout of tasks and the scripts over them, `pages` reads lists, and
`change_subscriber` receives the changes of other processes.
"""
