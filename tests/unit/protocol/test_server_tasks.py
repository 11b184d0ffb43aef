"""What is known of a task that a server made."""

from taskgate.domain.record import TaskStatus
from taskgate.protocol.server_tasks import ServerTask, TaskTold


def test_a_task_says_no_more_than_its_server_did() -> None:
    task = ServerTask("t", TaskStatus.WORKING)
    assert (task.message, task.updated, task.interval, task.response) == (None, None, None, None)
    assert task.questions == {}


def test_news_name_their_task() -> None:
    assert TaskTold("t").id == "t"
