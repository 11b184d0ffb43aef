"""Servers that are programs on this machine, spoken to over their standard streams.

`pool.StdioChannels` is the `ChannelProvider` of one server: which caller gets which program and
which one is evicted (`slots`), and when one is started again (`exits`). `starting` starts a program
and returns its `channel.ProgramChannel`, with its `pipes` and the log of its standard error
(`stderr_log`). `exits` has the ways in which it ends. A separate supervisor process (`supervisor`)
starts the programs, and ends them if the gateway dies; `supervisor_client` is the gateway's end.
"""
