"""The commands that ask a running gateway, at its operators' listener.

`client` sends their requests. Each other module is the work of one command or group. Nothing here
loads a part of the gateway, so a command starts quickly.
"""
