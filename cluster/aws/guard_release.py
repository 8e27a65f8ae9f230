"""Wait for alarms that would end new workers at once, and release the workers after the budget stopped them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cluster.aws.client import Aws, aws_errors
from cluster.aws.guard import ALARM, Bound, read, read_or_explain
from cluster.errors import DeepcdkError
from cluster.polling import poll
from cluster.terminal.status_line import doing

TIMEOUT_S: Final = 600.0
POLL_S: Final = 5.0


@doing("waiting for an alarm to end", plain=False)
def wait_until_allowed(aws: Aws, stack: str, report: Callable[[str], None]) -> None:
    """Wait until no alarm would terminate new workers at once: it stays active for minutes after it has acted.

    Raises DeepcdkError if the budget is spent, or if an alarm does not end in time.
    """
    kinds = ""
    for _ in poll(TIMEOUT_S, every_s=POLL_S):
        bounds = read_or_explain(aws, stack)
        active = [bound.kind for bound in bounds if bound.state == ALARM] if not isinstance(bounds, str) else []
        if not active:
            return
        if "budget" in active:
            raise DeepcdkError(
                "the budget is spent: new workers would be terminated at once",
                remedy="raise budget_usd and `fab up`, then `fab release`",
            )
        if not kinds:
            report(f"waiting for the end of the alarm on {' and '.join(active)}, which has just terminated all workers")
        kinds = " and ".join(active)
    raise DeepcdkError(
        f"the alarm on {kinds} has not ended for {TIMEOUT_S:.0f} s: it would terminate new workers at once",
        remedy="`fab status` shows it; repeat when it is over",
    )


def count_messages(aws: Aws, budget: Bound) -> int:
    """Return how many messages of the spent budget are in its queue. Raises AwsError."""
    with aws_errors(f"reading the queue {budget.queue}"):
        sqs = aws.client("sqs")
        answer = sqs.get_queue_attributes(
            QueueUrl=sqs.get_queue_url(QueueName=budget.queue)["QueueUrl"],
            AttributeNames=["ApproximateNumberOfMessages"],
        )
    return int(answer["Attributes"]["ApproximateNumberOfMessages"])


def purge_messages(aws: Aws, budget: Bound) -> None:
    """Delete the messages of the spent budget. Raises AwsError."""
    with aws_errors(f"emptying the queue {budget.queue}"):
        sqs = aws.client("sqs")
        sqs.purge_queue(QueueUrl=sqs.get_queue_url(QueueName=budget.queue)["QueueUrl"])


@doing("waiting for the budget's alarm to end", plain=False)
def wait_for_end(aws: Aws, stack: str, report: Callable[[str], None]) -> None:
    """Wait until the budget's alarm has ended. Raises DeepcdkError if it does not end in time."""
    for waited_s in poll(TIMEOUT_S, every_s=POLL_S):
        if not any(bound.kind == "budget" and bound.state == ALARM for bound in read(aws, stack)):
            return
        if not waited_s:
            report("released; waiting for the end of the budget's alarm, which takes some minutes")
    raise DeepcdkError(
        f"the budget's alarm has not ended for {TIMEOUT_S:.0f} s", remedy="`fab status` shows when it is over"
    )
