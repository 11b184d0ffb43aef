"""What is owed to whoever runs the gateway: the part of `requirements` that is about what can be seen from outside."""

from typing import Final

FOR_OPERATORS: Final = {
    "O-AUD-1": "creation, end, retrieval, cancel, answers and expiry of tasks are recorded, with whose they are",
    "O-AUD-2": "looks for many tasks that are not there, and polls that come too often, are recorded",
    "O-AUD-3": "no token, no id of a task and no value of an argument is in the audit log, unless values are asked for",
    "O-AUD-4": "the series of metrics are bounded, and no label names a caller, a session, a task or what a host chose",
    "O-AUD-5": "refused scopes are recorded under the request's id, and why hosts cancel",
}
