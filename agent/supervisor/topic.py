"""Publish an event of a run to a topic of SNS, with the role of the master."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from agent.remote.command import Completed, execute
from agent.spec.topics import region_of
from agent.staging.aws_cli import aws_command

MOST_SUBJECT: Final = 99
"""Characters of a subject: SNS takes fewer than 100, printable ASCII alone."""
MOST_TEXT: Final = 10_000
"""Characters of an event's text: SNS takes messages of 256 KiB, which has it twice here, escaped."""


def command(topic: str, document: dict[str, Any]) -> list[str]:
    """Build the command that publishes an event: in mail its text, for all other subscribers the event as JSON."""
    text = str(document["text"])[:MOST_TEXT]
    message = {"default": json.dumps({**document, "text": text}), "email": text}
    subject = f"deepcdk: {document['run_id']} {document['event']}"
    words = ("--topic-arn", topic, "--subject", subject[:MOST_SUBJECT], "--message-structure", "json")
    return aws_command("sns", "publish", *words, "--message", json.dumps(message), region=region_of(topic))


def publish(
    topic: str,
    document: dict[str, Any],
    timeout_s: float,
    run: Callable[[Sequence[str], float], Completed] = execute,
) -> str:
    """Publish an event; return what went wrong, "" where nothing did."""
    done = run(command(topic, document), timeout_s)
    if done.status == 0:
        return ""
    return (done.output.strip().splitlines() or [f"status {done.status}"])[-1]
