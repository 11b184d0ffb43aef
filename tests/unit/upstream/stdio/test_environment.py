"""What a program finds in its environment."""

from taskgate.upstream.stdio.supervisor_client import environment, inherited

OWN = {
    "PATH": "/bin", "HOME": "/root", "USER": "root", "LANG": "C", "LC_ALL": "C", "LC_CTYPE": "C", "TZ": "UTC",
    "TMPDIR": "/tmp", "LC_": "x", "PATHEXT": "x", "MYPATH": "x", "TASKGATE_TOKEN": "secret", "LD_PRELOAD": "x",
    "PYTHONPATH": "x", "NODE_OPTIONS": "x", "LOGNAME": "root", "SHELL": "/bin/sh", "TERM": "xterm", "SHLVL": "1",
    "AWS_SECRET_ACCESS_KEY": "secret",
}  # fmt: skip
PASSES = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"}


def test_of_the_gateways_own_it_has_what_every_program_needs_and_no_more() -> None:
    assert set(inherited(OWN)) == PASSES


def test_what_is_named_is_there_and_counts_more() -> None:
    found = environment({"TOKEN": "t", "PATH": "/usr/bin"}, OWN)
    assert set(found) == {*PASSES, "TOKEN"}
    assert (found["PATH"], found["HOME"]) == ("/usr/bin", "/root")
