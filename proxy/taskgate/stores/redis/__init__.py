"""The store in Redis or Valkey that several gateways share; `open.open_redis` opens it.

`client` runs commands and scripts over the connections of `pipeline`, `connector`, `topology` and
`health`. Tasks and host sessions are in `records`; leases, rate budgets, the cluster bus and
resumable streams have one module each. All keys of a deployment share one hash tag
(`options.KeyNames`). Each Lua file is a script that one of these modules runs. `stores.open` is the
only user.
"""
