"""The tests of `fastmcp` for its proxy, with taskgate in its place between the same hosts and servers."""

from example import environments

from suites.runs import Run, pytest_run
from suites.verdicts import FASTMCP_PROXY

FILES = (
    "test_proxy_client.py",
    "test_proxy_server.py",
    "test_server_metadata.py",
    "test_skills.py",
    "test_stateful_proxy_client.py",
)
"""Those about what crosses a proxy; the others are about its factories, headers of HTTP and errors of schemas."""
MOUNTS = 260
"""They do not connect more often."""
FOLDER = "tests/server/providers/proxy/"


def run() -> Run:
    """All of them, as one process with a gateway."""
    tests = environments.source_of(FASTMCP_PROXY.environment) / FOLDER
    # The package is the installed one, and a busy machine may need more than the suite's five seconds.
    options = ("-o", "pythonpath=", "-o", "filterwarnings=", "--timeout=20")
    files = [tests / file for file in FILES]
    arguments = (*options, *files)
    return pytest_run(FASTMCP_PROXY.environment, "fastmcp_proxy_plugin", mounts=MOUNTS, arguments=arguments)
