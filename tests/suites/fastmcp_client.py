"""The tests of `fastmcp` for its client, whose hosts and servers meet over sockets instead of in memory."""

from example import environments

from suites.runs import Run, pytest_run
from suites.verdicts import FASTMCP

FILES = (
    "test_elicitation.py",
    "test_elicitation_enums.py",
    "test_logs.py",
    "test_notifications.py",
    "test_progress.py",
    "test_result_hydration.py",
    "test_roots.py",
    "test_sampling.py",
    "client/test_client.py",
    "client/test_error_handling.py",
    "client/test_initialize.py",
    "client/test_input_required_driver.py",
    "client/test_session.py",
    "client/test_timeout.py",
)
"""Those about what a host and a server say to each other; the others are about transports, tokens and programs."""
MOUNTS = 220
"""They do not connect more often."""


def run() -> Run:
    """All of them, as one process with a gateway."""
    tests = environments.source_of(FASTMCP.environment) / "tests" / "client"
    # The package is the installed one, and a busy machine may need more than the suite's five seconds.
    options = ("-o", "pythonpath=", "-o", "filterwarnings=", "--timeout=20")
    files = [tests / file for file in FILES]
    return pytest_run(FASTMCP.environment, "fastmcp_plugin", mounts=MOUNTS, arguments=(*options, *files))
