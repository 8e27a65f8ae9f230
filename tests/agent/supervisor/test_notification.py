"""Notification commands: their input, and that a failing command is reported and changes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.errors import SpecError
from agent.remote.ssh import Completed
from agent.runs import trusted_spec
from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from agent.spec.run_limits import RunLimits
from agent.spec.sns_topic import topic_region
from agent.supervisor import lost_supervisor, notification
from agent.supervisor.notification import Notifier, call
from tests.agent.supervisor.live_runs import Call, final_state, log_of, script_spec
from tests.factories import abandon, make_spec, make_state
from tests.waiting import eventually

EVENT: dict[str, Any] = {"event": "ended", "run_id": "one", "text": "run one succeeded", "time": 1.0}


def test_command_gets_event_as_json_and_variables_without_those_of_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPCDK_RUN", "one")
    wrote = 'cat > got; echo "$DEEPCDK_EVENT $DEEPCDK_EVENT_RUN $DEEPCDK_EVENT_TEXT:$DEEPCDK_RUN" > words'
    assert call(wrote, EVENT, tmp_path) == ""
    assert json.loads((tmp_path / "got").read_text()) == EVENT
    assert (tmp_path / "words").read_text() == "ended one run one succeeded:\n"


def test_command_that_ignores_stdin_succeeds(tmp_path: Path) -> None:
    assert call("true", {**EVENT, "text": "x" * 400_000}, tmp_path) == ""
    assert call("true", EVENT, tmp_path) == ""


def test_failed_command_is_reported_with_its_status_and_last_line(tmp_path: Path) -> None:
    assert call("echo first; echo no route >&2; exit 7", EVENT, tmp_path) == "exit status 7: no route"
    assert call("exit 3", EVENT, tmp_path) == "exit status 3"
    assert call("missing-program", EVENT, tmp_path).startswith("exit status 127: ")
    assert "No such file" in call("true", EVENT, tmp_path / "gone")


def test_hanging_command_is_killed_with_its_children(tmp_path: Path) -> None:
    began = time.monotonic()
    assert call("sleep 600 & sleep 600", EVENT, tmp_path, timeout_s=0.5) == "timed out after 0.5 s"
    assert time.monotonic() - began < 20


def test_commands_run_concurrently_and_failure_has_number_of_its_command(tmp_path: Path) -> None:
    lines: list[str] = []
    told: list[tuple[str, str]] = []

    def fake(command: str, document: dict[str, Any], directory: Path) -> str:
        told.append((command, document["event"]))
        return "status 1" if "secret" in command else ""

    notifier = Notifier(("post", "post secret"), "one", tmp_path, lines.append, call=fake)
    notifier.tell(notification.NEAR_BOUND, "80%")
    notifier.finish()
    notifier.tell_end(make_state(state="failed", reason="no room"))
    notifier.finish()
    assert sorted(told) == [
        ("post", "failed"), ("post", "near-bound"), ("post secret", "failed"), ("post secret", "near-bound"),
    ]  # fmt: skip
    assert lines == [
        "--notify number 2 could not report that the run is near its limit: status 1",
        "--notify number 2 could not report that the run has failed: status 1",
    ]
    assert notifier.failures == lines


@pytest.mark.parametrize("commands", [("",), (" ",), ("a\0b",), ("true",) * 11])
def test_invalid_commands_are_rejected(commands: tuple[str, ...]) -> None:
    with pytest.raises(SpecError, match="--notify: must be at most 10 commands"):
        make_spec(notify=commands)


def told(directory: Path) -> list[dict[str, Any]]:
    path = directory / "events"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_run_notifies_of_limit_and_end_despite_failing_command(efs: Path, supervisor: Call) -> None:
    script = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
    spec = script_spec(efs, script, bounds=RunLimits(max_hours=4 / 3600), notify=("cat >> events", "exit 5"))
    supervisor("start", stdin=spec.to_json())
    state = final_state(efs, "one")
    assert state["state"] == "stopped"
    failure = "--notify number 2 could not report that the run has ended: exit status 5"
    eventually(lambda: failure in log_of(efs, "one"))
    record = eventually(lambda: found if (found := read_record(efs))["course"].get("notify") else None)
    assert record["course"]["notify"][-1] == failure
    assert record["spec"]["notify"] == [None, None], "a command may hold what is secret, and the record leaves the node"
    events = told(efs / "runs" / "one")
    assert events[-1]["event"] == "ended"
    assert events[-1]["text"] == f"run one stopped: {state['reason']}"
    assert {each["event"] for each in events} <= {"near-bound", "ended"}


def read_record(efs: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((efs / "runs" / "one" / "record.json").read_text())
    return found


def test_scheduler_notifies_of_lost_run_unless_a_rank_changed_its_commands(
    efs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(root=efs / "runs")
    directory: RunDirectory = runs["one"]
    directory.path.mkdir(parents=True)
    spec = make_spec(run_id="one", efs_mount=str(efs), hosts=(), launcher=("true",), notify=("cat >> events",))
    monkeypatch.setattr(lost_supervisor, "kill", lambda runs, spec: None)
    text = trusted_spec.accept(spec)
    directory.spec.write_text(text.replace("events", "planted"))
    directory.write_state(make_state())
    runs.claim("one", None)
    abandon("one")
    lost_supervisor.recover_lost_runs(runs)
    assert not (directory.path / "planted").exists()
    (event,) = told(directory.path)
    assert (event["event"], event["run_id"]) == ("failed", "one")
    assert event["reason"].startswith("supervisor died")


TOPIC = "arn:aws:sns:eu-west-1:123456789012:deepcdk-Topic-AB12"
FAILED: dict[str, Any] = {"event": "failed", "run_id": "one", "text": "run one failed: no\x1b room", "time": 1.0}


def words(document: dict[str, Any]) -> dict[str, str]:
    """Return the options of the command that publishes an event."""
    command = notification.publish_command(TOPIC, document)
    assert command[:3] == ["aws", "sns", "publish"]
    return dict(zip(command[3::2], command[4::2], strict=True))


def test_mail_gets_the_text_and_all_others_the_event_as_json() -> None:
    found = words(FAILED)
    assert (found["--topic-arn"], found["--region"]) == (TOPIC, "eu-west-1")
    assert found["--subject"] == "deepcdk: one failed"
    message = json.loads(found["--message"])
    assert found["--message-structure"] == "json"
    assert (json.loads(message["default"]), message["email"]) == (FAILED, FAILED["text"])


def test_too_large_message_is_truncated_for_sns() -> None:
    found = words({**FAILED, "run_id": "r" * 128, "text": "\x01" * 400_000})
    assert len(found["--subject"]) < 100
    assert len(found["--message"].encode()) < 256 * 1024


def test_failed_publication_returns_its_last_line_and_a_success_nothing() -> None:
    def fails(command: Sequence[str], timeout_s: float) -> Completed:
        return Completed(status=254, output="\nAn error occurred (AuthorizationError): not authorized\n")

    assert notification.publish(TOPIC, FAILED, 1.0, fails) == "An error occurred (AuthorizationError): not authorized"
    assert notification.publish(TOPIC, FAILED, 1.0, lambda *_: Completed(status=124, output="")) == "status 124"
    assert notification.publish(TOPIC, FAILED, 1.0, lambda *_: Completed(status=0, output="{}")) == ""


def test_arn_among_commands_is_a_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []

    def publish(arn: str, document: dict[str, Any], timeout_s: float) -> str:
        told.append((arn, document["event"]))
        return "no"

    monkeypatch.setattr(notification, "publish", publish)
    assert notification.call(TOPIC, FAILED, tmp_path) == "no"
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
def test_only_topic_arns_are_topics(other: str) -> None:
    assert topic_region(other) == ""
