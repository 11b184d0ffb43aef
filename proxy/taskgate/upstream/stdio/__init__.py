"""Servers that are programs on this machine, spoken to over their standard streams.

`pool.StdioChannels` is the `ChannelProvider` of one server: which caller gets which program
(`slots`), how many there are (`room`), and when one is started again (`restarts`). `starting`
starts a program and returns its `channel.ProgramChannel`, with `framing`, `pipes` and the log of
its standard error (`chatter`). `endings` has the ways in which it ends. A separate supervisor
process ("nursery") starts the programs, and ends them if the gateway dies. `nursery` is that
process, `nurse`, `nursing` and `posting` are its client.
"""
