"""The examples and exit statuses of each command, by its path: `EXAMPLES` and `STATUSES`.

The help of a command ends with them, and so does its part of `docs/cli.md`. The path of the program
itself is empty.
"""

from collections.abc import Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "": (
        "taskgate serve --upstream http://127.0.0.1:3000/mcp",
        "taskgate init taskgate.yaml",
        "taskgate serve --config taskgate.yaml",
    ),
    "audit": (
        "taskgate audit verify audit.jsonl --key audit.key",
        "taskgate audit ref 01JH9ZQ3TA7M --key audit.key",
    ),
    "audit ref": ("taskgate audit ref 01JH9ZQ3TA7M --key audit.key",),
    "audit schema": ("taskgate audit schema > audit-schema.json",),
    "audit verify": (
        "taskgate audit verify audit.jsonl --key audit.key",
        "taskgate audit verify audit.jsonl* --key audit.key --expect-seq 1000",
    ),
    "call": (
        "taskgate call /mcp quick_sum --arg a=1 --arg b=2",
        "taskgate call reports generate_report --config taskgate.yaml --arg quarter=Q3 --task",
        "taskgate call /mcp search --args-json @arguments.json --token alice.token --json",
        "taskgate call https://mcp.example.com/reports/mcp list_reports --timeout 30",
    ),
    "callers": (
        "taskgate callers --token operator.token",
        "taskgate callers --caller c_x7 --json --token operator.token",
    ),
    "check": (
        "taskgate check --config taskgate.yaml",
        "taskgate check --config taskgate.yaml --online",
        "taskgate check --config taskgate.yaml --print > effective.yaml",
    ),
    "completion": (
        'eval "$(taskgate completion bash)"',
        "taskgate completion zsh > ~/.zfunc/_taskgate",
        "taskgate completion fish > ~/.config/fish/completions/taskgate.fish",
    ),
    "doctor": (
        "taskgate doctor",
        "taskgate doctor --config taskgate.yaml --admin http://127.0.0.1:9464",
        "taskgate doctor --config taskgate.yaml --json > report.json",
    ),
    "events": (
        "taskgate events --token operator.token",
        "taskgate events --kinds task --json --token operator.token",
    ),
    "examples": ("taskgate examples ./taskgate-examples",),
    "explain": (
        "taskgate explain --config taskgate.yaml --upstream reports --tool generate_report",
        "taskgate explain --config taskgate.yaml --upstream reports --tool delete_report --token alice.token",
        "taskgate explain --config taskgate.yaml --upstream reports --tool delete_report --claims sub=bob,scope=read",
        "taskgate explain --config taskgate.yaml --upstream reports --tool search --hint readOnlyHint=true --json",
    ),
    "health": (
        "taskgate health",
        "taskgate health --admin http://127.0.0.1:9464 --json",
        "HEALTHCHECK CMD taskgate health    # in a Dockerfile",
    ),
    "init": (
        "taskgate init",
        "taskgate init --upstream http://127.0.0.1:3000/mcp --yes",
        "taskgate init --from .mcp.json --yes",
        "taskgate init gateway.yaml --upstream-command 'npx -y some-server' --auth none --store sqlite",
        "taskgate init --upstream http://127.0.0.1:3000/mcp --auth issuer=https://idp.example.com/ --yes",
    ),
    "keys": ("taskgate keys new --name ci",),
    "keys hash": (
        "cat ci.key | taskgate keys hash",
        '(umask 077; echo "tgk_$(openssl rand -hex 32)" | tee ci.key) | taskgate keys hash',
    ),
    "keys new": ("taskgate keys new --name ci",),
    "metrics": (
        "taskgate metrics",
        "taskgate metrics --config taskgate.yaml",
    ),
    "schema": ("taskgate schema > schema.json",),
    "serve": (
        "taskgate serve --upstream http://127.0.0.1:3000/mcp",
        "taskgate serve --upstream-command 'npx -y @modelcontextprotocol/server-everything'",
        "taskgate serve --config taskgate.yaml",
    ),
    "tasks": (
        "taskgate tasks ls --unfinished --older-than 10m --token operator.token",
        "taskgate tasks show t_Pix6lDlMKzSHtQcVSLXj5g --token operator.token",
    ),
    "tasks cancel": (
        "taskgate tasks cancel t_Pix6lDlMKzSHtQcVSLXj5g --reason 'the database is down' --token operator.token",
        "taskgate tasks ls -q --unfinished --tool slow_report | xargs taskgate tasks cancel",
    ),
    "tasks cancel-many": (
        "taskgate tasks cancel-many --upstream reports --older-than 1h --dry-run --token operator.token",
        "taskgate tasks cancel-many --upstream reports --older-than 1h --token operator.token",
        "taskgate tasks cancel-many --caller c_x7 --yes --json --token operator.token",
    ),
    "tasks ls": (
        "taskgate tasks ls --token operator.token",
        "taskgate tasks ls --unfinished --sort created --older-than 10m --token operator.token",
        "taskgate tasks ls --failed --upstream reports --younger-than 1h --json --token operator.token",
        "taskgate tasks ls --unfinished --watch --token operator.token",
    ),
    "tasks show": (
        "taskgate tasks show t_Pix6lDlMKzSHtQcVSLXj5g --token operator.token",
        "taskgate tasks show t_Pix6lDlMKzSHtQcVSLXj5g --json --admin http://127.0.0.1:9464 --token operator.token",
        "taskgate tasks show t_Pix6lDlMKzSHtQcVSLXj5g --payload --token operator.token",
    ),
    "tasks watch": ("taskgate tasks watch t_Pix6lDlMKzSHtQcVSLXj5g --interval 5 --token operator.token",),
    "token": ("taskgate token inspect --config taskgate.yaml --token alice.token",),
    "token inspect": (
        "taskgate token inspect --config taskgate.yaml --token alice.token",
        "taskgate token inspect --config taskgate.yaml --token alice.token --upstream reports --json",
    ),
    "tools": (
        "taskgate tools reports --config taskgate.yaml",
        "taskgate tools reports --claims sub=bob,scope=read --json",
    ),
    "top": (
        "taskgate top --token operator.token",
        "taskgate top --sort updated --token operator.token",
        "taskgate top --once --json --token operator.token",
    ),
    "upstreams": (
        "taskgate upstreams ls --token operator.token",
        "taskgate upstreams hold reports --token operator.token",
    ),
    "upstreams hold": ("taskgate upstreams hold reports --token operator.token",),
    "upstreams ls": (
        "taskgate upstreams ls --token operator.token",
        "taskgate upstreams ls --json --token operator.token",
    ),
    "upstreams release": ("taskgate upstreams release reports --token operator.token",),
    "upstreams show": ("taskgate upstreams show reports --token operator.token",),
    "version": (
        "taskgate version",
        "taskgate version --json",
    ),
}
"""Commands to paste, by the path of the command."""

_DONE: Final = "success"
_USE: Final = "the command line or a file that it names is wrong"
_CONFIGURATION: Final = "the command line or the configuration is wrong"
_PRINTED: Final = {0: _DONE, 2: _USE}

_API: Final = {0: _DONE, 1: "the gateway refused, or was not reached", 2: _USE}

STATUSES: Final[Mapping[str, Mapping[int, str]]] = {
    "": {
        0: _DONE,
        1: "the command failed",
        2: _CONFIGURATION,
    },
    "audit": {0: _DONE, 1: "a problem was found", 2: "a file cannot be used"},
    "audit ref": {0: _DONE, 2: "the key cannot be used"},
    "audit schema": _PRINTED,
    "audit verify": {0: "no problem was found", 1: "a problem was found", 2: "the log could not be verified"},
    "call": {
        0: "the tool returned a result",
        1: "the gateway was not reached, or the call failed",
        2: "the command line, an argument or the configuration is wrong",
        3: "the tool returned an error",
        124: "no result within --timeout; the call was cancelled",
        130: "Ctrl-C; the call was cancelled",
        143: "SIGTERM; the call was cancelled",
    },
    "callers": _API,
    "check": {
        0: "the gateway would start; there may be warnings",
        1: "with --online: a server, an issuer or the store did not answer",
        2: "the gateway would not start",
    },
    "completion": _PRINTED,
    "doctor": {0: "no problem was found", 1: "a problem was found", 2: "the command line is wrong"},
    "events": {0: "Ctrl-C", 1: "the gateway refused, or was not reached at the start", 2: _USE},
    "examples": {0: _DONE, 1: "a file could not be written", 2: "a file exists, or the command line is wrong"},
    "explain": {0: _DONE, 1: "the token or the claims were refused, or the server was not reached", 2: _CONFIGURATION},
    "health": {0: "ready", 1: "not ready, draining, or not reached", 2: "the command line is wrong"},
    "init": {0: _DONE, 1: "the file could not be written", 2: "the command line or an answer is wrong"},
    "keys": {0: _DONE, 2: _USE},
    "keys hash": {0: _DONE, 2: "standard input holds no API key"},
    "keys new": {0: _DONE, 2: _USE},
    "metrics": {0: _DONE, 2: _CONFIGURATION},
    "schema": _PRINTED,
    "serve": {0: "ended by a signal or a drain", 1: "the gateway could not start", 2: _CONFIGURATION},
    "tasks": _API,
    "tasks cancel": {0: "all tasks were cancelled", 1: "one was not, or the gateway was not reached", 2: _USE},
    "tasks cancel-many": {
        0: "all tasks that matched are cancelled, or have ended",
        1: "one was not, other tasks match by now, or the gateway was not reached",
        2: _USE,
    },
    "tasks ls": _API,
    "tasks show": _API,
    "tasks watch": {
        0: "the task completed",
        1: "it failed or was cancelled, or the gateway refused",
        2: _USE,
        3: "the task completed with an error of its tool",
        130: "Ctrl-C; the task goes on",
    },
    "token": {0: "the token is accepted", 1: "the token is refused", 2: _CONFIGURATION},
    "token inspect": {0: "the token is accepted", 1: "the token is refused", 2: _CONFIGURATION},
    "tools": {0: _DONE, 1: "the token was refused, or the server not reached", 2: _CONFIGURATION},
    "top": _API,
    "upstreams": _API,
    "upstreams hold": _API,
    "upstreams ls": _API,
    "upstreams release": _API,
    "upstreams show": _API,
    "version": _PRINTED,
}
"""The meaning of each exit status, by the path of the command."""
