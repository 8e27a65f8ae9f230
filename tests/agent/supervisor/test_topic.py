"""Facts about topics of SNS that are told of a run: what is published, where, and what a failure says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.remote.command import Completed
from agent.spec.topics import is_topic, region_of
from agent.supervisor import notification, topic

TOPIC = "arn:aws:sns:eu-west-1:123456789012:deepcdk-Topic-AB12"
EVENT: dict[str, Any] = {"event": "failed", "run_id": "one", "text": "run one failed: no\x1b room", "time": 1.0}


def words(document: dict[str, Any]) -> dict[str, str]:
    """Return the options of the command that publishes an event."""
    command = topic.command(TOPIC, document)
    assert command[:3] == ["aws", "sns", "publish"]
    return dict(zip(command[3::2], command[4::2], strict=True))


def test_mail_gets_the_text_and_all_others_the_event_as_json() -> None:
    found = words(EVENT)
    assert (found["--topic-arn"], found["--region"]) == (TOPIC, "eu-west-1")
    assert found["--subject"] == "deepcdk: one failed"
    message = json.loads(found["--message"])
    assert found["--message-structure"] == "json"
    assert (json.loads(message["default"]), message["email"]) == (EVENT, EVENT["text"])


def test_what_sns_refuses_for_its_size_is_cut() -> None:
    found = words({**EVENT, "run_id": "r" * 128, "text": "\x01" * 400_000})
    assert len(found["--subject"]) < 100
    assert len(found["--message"].encode()) < 256 * 1024


def test_a_failure_is_told_by_the_last_line_and_a_success_by_none() -> None:
    def fails(command: Sequence[str], timeout_s: float) -> Completed:
        return Completed(status=254, output="\nAn error occurred (AuthorizationError): not authorized\n")

    assert topic.publish(TOPIC, EVENT, 1.0, fails) == "An error occurred (AuthorizationError): not authorized"
    assert topic.publish(TOPIC, EVENT, 1.0, lambda *_: Completed(status=124, output="")) == "status 124"
    assert topic.publish(TOPIC, EVENT, 1.0, lambda *_: Completed(status=0, output="{}")) == ""


def test_an_arn_among_the_commands_is_published_to_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []

    def publish(arn: str, document: dict[str, Any], timeout_s: float) -> str:
        told.append((arn, document["event"]))
        return "no"

    monkeypatch.setattr(notification, "publish", publish)
    assert notification.call(TOPIC, EVENT, tmp_path) == "no"
    assert told == [(TOPIC, "failed")]


@pytest.mark.parametrize(
    "other",
    [
        "topic",
        f"{TOPIC} x",
        f"{TOPIC}\n",
        "arn:aws:sqs:eu-west-1:123456789012:one",
        "arn:aws:sns:eu-west-1:1:one",
        "arn:aws:sns:eu-west-1:123456789012:$(id)",
    ],
)
def test_nothing_else_is_a_topic(other: str) -> None:
    assert not is_topic(other)
    with pytest.raises(ValueError, match="not the ARN of a topic"):
        region_of(other)
