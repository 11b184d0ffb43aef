"""What everybody may read of a gateway to which everything has happened: it holds no secret that was used there."""

import re

import pytest

from helpers import secrets
from observability.drive import Run
from observability.reading import files_of

pytestmark = [pytest.mark.alone, pytest.mark.timeout(480)]


@pytest.fixture(params=["audit log", "standard output", "metrics", "log"])
def told(request: pytest.FixtureRequest, run: Run) -> str:
    """All of it, as one text; of metrics the labels, since they are all that could tell anything."""
    return {
        "audit log": "".join(path.read_text() for sink in ("file", "spare") for path in files_of(run, sink)),
        "standard output": "".join(path.read_text() for path in files_of(run, "stdout")),
        "metrics": "".join(re.findall(r'="[^"]*"', "".join(run.pages))),
        "log": "".join((*run.logs, *(left.log for left in run.replicas))),
    }[request.param]


def test_no_token_no_id_and_no_value_of_an_argument_is_in_it(run: Run, told: str) -> None:
    assert len(run.secrets) > 100
    assert secrets.found_in(told) == []
    assert [secret[:4] for secret in run.secrets if secret in told] == []


def test_neither_is_any_part_of_a_token_by_which_it_could_be_made_again(run: Run, told: str) -> None:
    signatures = [secret.rpartition(".")[2] for secret in run.secrets if secret.startswith("eyJ")]
    assert signatures
    assert [signature[:4] for signature in signatures if signature in told] == []


def test_no_process_met_a_failure_that_it_had_no_name_for(run: Run) -> None:
    """Whatever went wrong around them was told in words: an exception in a log is a fault of the gateway's own."""
    logs = (*run.logs, *(left.log for left in run.replicas))
    assert [line for log in logs for line in log.splitlines() if '"exception":' in line] == []
