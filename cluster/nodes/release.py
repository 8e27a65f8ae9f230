"""Release the workers after the budget was spent: empty the queue of its alarm, and wait for the alarm."""

from __future__ import annotations

from collections.abc import Callable

from cluster.aws.client import Aws
from cluster.aws.errors import aws_errors
from cluster.aws.worker_limits import ALARM, POLL_S, TIMEOUT_S, Limit, read
from cluster.errors import DeepcdkError
from cluster.polling import poll
from cluster.terminal.status_line import doing


def count_messages(aws: Aws, budget: Limit) -> int:
    """Return the approximate number of messages about the spent budget in its queue. Raises AwsError."""
    with aws_errors(f"reading the queue {budget.queue}"):
        sqs = aws.client("sqs")
        answer = sqs.get_queue_attributes(
            QueueUrl=sqs.get_queue_url(QueueName=budget.queue)["QueueUrl"],
            AttributeNames=["ApproximateNumberOfMessages"],
        )
    return int(answer["Attributes"]["ApproximateNumberOfMessages"])


def purge_messages(aws: Aws, budget: Limit) -> None:
    """Delete the messages about the spent budget, so that its alarm becomes inactive minutes later. Raises AwsError."""
    with aws_errors(f"emptying the queue {budget.queue}"):
        sqs = aws.client("sqs")
        sqs.purge_queue(QueueUrl=sqs.get_queue_url(QueueName=budget.queue)["QueueUrl"])


@doing("waiting until the budget's alarm is inactive", plain=False)
def wait_until_released(aws: Aws, stack: str, report: Callable[[str], None]) -> None:
    """Wait until the budget's alarm is no longer active. `report` is called once, with a text, if it has to wait.

    Raises DeepcdkError if the alarm is still active after TIMEOUT_S, or AwsError.
    """
    for waited_s in poll(TIMEOUT_S, every_s=POLL_S):
        if not any(limit.kind == "budget" and limit.state == ALARM for limit in read(aws, stack)):
            return
        if not waited_s:
            report("released; waiting until the budget's alarm is inactive, which takes some minutes")
    raise DeepcdkError(
        f"the budget's alarm is still active after {TIMEOUT_S:.0f} s, and terminates new workers",
        remedy="wait until `fab status` no longer shows that the budget is spent, then add workers",
    )
