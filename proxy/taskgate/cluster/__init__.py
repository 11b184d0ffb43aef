"""The replicas of one deployment, which share a store and can each serve any host.

`bus` sends `messages` between them; `message_auth` seals and numbers those. `remote_sessions` is
the state of a host session at other replicas. Sessions, the gateway and the lifecycle use them;
without a shared store there is no bus.
"""
