"""What is known of a task that a server made."""

from taskgate.dialects.server_tasks import ServerTask, TaskTold
from taskgate.tasks.record import TaskStatus


def test_a_task_says_no_more_than_its_server_did() -> None:
    task = ServerTask("t", TaskStatus.WORKING)
    assert (task.message, task.updated, task.interval, task.response) == (None, None, None, None)
    assert task.questions == {}


def test_news_name_their_task() -> None:
    assert TaskTold("t").id == "t"
