"""Values of `--notify`: commands for the master's shell, `topic`, the ARN of a topic, or `none`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from agent.spec.run import MAX_COMMANDS
from agent.spec.sns_topic import topic_region
from cluster.aws.stack import Stack
from cluster.errors import DeepcdkError, UsageError

TOPIC: Final = "topic"
"""Placeholder for the topics of the cluster's alarms."""
NOBODY: Final = "none"
"""Value of `fab resume --notify`, alone: no notifications; the run's earlier values are dropped."""
_ADDRESS: Final = re.compile(r"[^\s@/'\"|;&<>$]+@[^\s@/'\"|;&<>$]+\.[a-z]+", re.IGNORECASE)


def check_notify(given: Sequence[str]) -> None:
    """Raise UsageError for --notify with too many values, with `none` besides other values, or with an invalid value.

    A value is invalid if it is empty, has a NUL byte, or is a mail address. The cluster is not needed for these checks.
    """
    if len(given) > MAX_COMMANDS:
        raise UsageError("--notify", None, f"is given {len(given)} times, but at most {MAX_COMMANDS} are allowed")
    if len(given) > 1 and NOBODY in map(str.strip, given):
        raise UsageError("--notify", NOBODY, "contradicts the other values of --notify; leave it out")
    for command in given:
        if not command.strip() or "\0" in command:
            raise UsageError("--notify", command, f"must be a command, {TOPIC}, {NOBODY}, or the ARN of an SNS topic")
        if _ADDRESS.fullmatch(command.strip()):
            rule = f"is a mail address, not a command; set alarm_emails to it, and give `--notify {TOPIC}`"
            raise UsageError("--notify", command, rule)


def resolve_topics(given: Sequence[str], stack: Stack) -> tuple[str, ...]:
    """Return the values of --notify with `topic` replaced by the ARNs of the cluster's topics, without duplicates.

    Commands are returned without spaces at their ends. For `none`, returns (). Raises DeepcdkError if `topic` is given
    and the cluster has no topic, or if the master may not publish to a given topic.
    """
    commands = [command.strip() for command in given]
    if NOBODY in commands:
        return ()
    found: list[str] = []
    for command in commands:
        if command == TOPIC and not stack.topics:
            raise DeepcdkError(
                f"--notify {TOPIC}: the alarms of stack {stack.name} have no topic",
                remedy="in cdk.json, set alarms = true, and alarm_emails or alarm_topic; then run `fab up`",
            )
        if topic_region(command) and command not in stack.topics:
            told = ", ".join(stack.topics) or "none"
            raise DeepcdkError(
                f"--notify {command}: the master of stack {stack.name} may not publish to this topic, only to {told}",
                remedy="in cdk.json, set alarms = true, and alarm_topic to this topic; then run `fab up`",
            )
        found += stack.topics if command == TOPIC else [command]
    return tuple(dict.fromkeys(found))
