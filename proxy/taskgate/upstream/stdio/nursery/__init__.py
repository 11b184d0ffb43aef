"""The nursery: a small program beside the gateway that starts servers' programs, and ends them however it goes itself.

Standard library only, one thread, and nothing of the rest of the gateway: it has to be light and to outlive it.
"""
