"""How long a host without tasks waits for an answer, and when its late call is handed off."""

from taskgate.domain.handoff import CEILINGS, CEILINGS_WITH_PROGRESS


def test_progress_extends_the_wait_of_known_hosts_alone() -> None:
    assert CEILINGS_WITH_PROGRESS.keys() <= CEILINGS.keys()
    assert all(CEILINGS_WITH_PROGRESS[name] > CEILINGS[name] for name in CEILINGS_WITH_PROGRESS)
