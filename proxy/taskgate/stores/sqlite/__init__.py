"""The store in one SQLite file that one process holds: `store.SqliteStore`, in the file that
`file.open_file` opens.

`reader` and `writer` own the connections and threads. The queries in `reader`, `task_writes` and the
rare `writes` are the operations that they run, in the SQL of `statements` and the layout of
`schema.sql`. `state` is what the store knows without its file.
`stores.open` is the only user.
"""
