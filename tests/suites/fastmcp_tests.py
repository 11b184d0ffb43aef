"""The tests of `fastmcp` for its client and its proxy: hosts and servers meet over sockets, with taskgate in between.

What a proxy of FastMCP does there, taskgate does instead.
"""

from collections.abc import Mapping, Sequence

from example import environments

from suites.runs import Run, pytest_run
from suites.verdicts import FASTMCP_CLIENT, FASTMCP_PROXY, Outcomes, Suite

CLIENT = (
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
PROXY = (
    "test_proxy_client.py",
    "test_proxy_server.py",
    "test_server_metadata.py",
    "test_skills.py",
    "test_stateful_proxy_client.py",
)
"""Those about what crosses a proxy; the others are about its factories, headers of HTTP and errors of schemas."""
FOLDERS: Mapping[Suite, str] = {FASTMCP_CLIENT: "tests/client/", FASTMCP_PROXY: "tests/server/providers/proxy/"}
MOUNTS = 260
"""They do not connect more often."""


def run(suite: Suite) -> Run:
    """All tests of a suite, as one process with a gateway."""
    if suite is FASTMCP_CLIENT:
        return _run(suite, "fastmcp_plugin", CLIENT)
    return _run(suite, "fastmcp_proxy_plugin", PROXY)


def rows(suite: Suite, found: Outcomes) -> Outcomes:
    """What pytest found, by row."""
    return {name.removeprefix(FOLDERS[suite]): problem for name, problem in found.items()}


def _run(suite: Suite, plugin: str, files: Sequence[str]) -> Run:
    tests = environments.source_of(suite.environment) / FOLDERS[suite]
    # The package is the installed one, and a busy machine may need more than the suite's five seconds.
    options = ("-o", "pythonpath=", "-o", "filterwarnings=", "--timeout=20")
    arguments = (*options, *(tests / file for file in files))
    return pytest_run(suite.environment, plugin, mounts=MOUNTS, arguments=arguments)
