"""Notify the user of a run's events (`--notify`), with commands that run on the master or with an SNS topic.

A command gets the event as JSON on standard input, and its name, run and text as environment variables. If a command
fails or times out, the run continues. The failure is reported in the run's log and record.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from agent.errors import describe
from agent.remote.ssh import Completed, execute
from agent.runs.stored_state import State
from agent.spec.sns_topic import topic_region
from agent.staging.aws_cli import aws_command

ENDED: Final = "ended"
FAILED: Final = "failed"
RESTARTED: Final = "restarted"
WAITING: Final = "waiting"
NEAR_BOUND: Final = "near-bound"
TIMEOUT_S: Final = 30.0
"""Time limit for one command. The last commands delay the end of a run by a few seconds more than this, at most."""
MOST_TEXT: Final = 4000
"""Maximum number of characters of the text in a variable (Linux: 128 KiB). The JSON contains the complete text."""
MAX_SUBJECT: Final = 99
"""Maximum number of characters of a subject. SNS requires fewer than 100, all printable ASCII."""
MAX_TOPIC_TEXT: Final = 10_000
"""Maximum number of characters of an event's text. An SNS message has at most 256 KiB, and contains the text twice."""
_SHOWN: Final = 200
_KEPT: Final = ("PATH", "HOME", "USER", "LANG")


def publish_command(topic: str, document: dict[str, Any]) -> list[str]:
    """Build the command that publishes an event to the SNS topic with the ARN `topic`.

    `document` contains the event's fields, with at least `event`, `run_id` and `text`. E-mail contains only the text;
    other subscribers get all fields as JSON. Only the first MAX_TOPIC_TEXT characters of the text are sent.
    """
    text = str(document["text"])[:MAX_TOPIC_TEXT]
    message = {"default": json.dumps({**document, "text": text}), "email": text}
    subject = f"deepcdk: {document['run_id']} {document['event']}"
    words = ("--topic-arn", topic, "--subject", subject[:MAX_SUBJECT], "--message-structure", "json")
    return aws_command("sns", "publish", *words, "--message", json.dumps(message), region=topic_region(topic))


def publish(
    topic: str,
    document: dict[str, Any],
    timeout_s: float,
    run: Callable[[Sequence[str], float], Completed] = execute,
) -> str:
    """Publish an event to an SNS topic, and wait up to `timeout_s` for the answer; return the error's last line, or "".

    `document` contains the event's fields.
    """
    done = run(publish_command(topic, document), timeout_s)
    return done.last_line if done.status else ""


def call(command: str, document: dict[str, Any], directory: Path, timeout_s: float = TIMEOUT_S) -> str:
    """Run a shell command with an event, or publish the event if the command is a topic's ARN; return the error, or "".

    `document` contains the event's fields. The command gets them as JSON on its standard input, and the main ones in
    the variables DEEPCDK_EVENT, DEEPCDK_EVENT_RUN and DEEPCDK_EVENT_TEXT. Of this process's variables, it gets only
    PATH, HOME, USER and LANG. It runs in `directory`. Waits for the command, which is killed with its process group
    after `timeout_s` seconds.
    """
    if topic_region(command):
        return publish(command, document, timeout_s)[:_SHOWN]
    variables = {
        "DEEPCDK_EVENT": str(document["event"]),
        "DEEPCDK_EVENT_RUN": str(document["run_id"]),
        "DEEPCDK_EVENT_TEXT": str(document["text"]).replace("\0", "")[:MOST_TEXT],
    }
    try:
        with subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=directory,
            # Without the run's own variables: these mark the processes to terminate with the run.
            env={**{name: os.environ[name] for name in _KEPT if name in os.environ}, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate((json.dumps(document) + "\n").encode(), timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return f"timed out after {timeout_s:g} s"
    except (OSError, ValueError) as error:
        return describe(error)
    if process.returncode == 0:
        return ""
    last = (output.decode(errors="replace").strip().splitlines() or [""])[-1][:_SHOWN]
    return f"exit status {process.returncode}{': ' if last else ''}{last}"


class Notifier:
    """Run the commands for a run's events in the background.

    Messages identify a command by its number, because its text may be secret. `failures` contains the messages.
    """

    def __init__(
        self,
        commands: Sequence[str],
        run_id: str,
        directory: Path,
        log_line: Callable[[str], None],
        call: Callable[[str, dict[str, Any], Path], str] = call,
    ) -> None:
        self._commands, self._run_id, self._directory = commands, run_id, directory
        self._log, self._call = log_line, call
        self._threads: list[threading.Thread] = []
        self.failures: list[str] = []

    def tell(self, event: str, text: str, **facts: Any) -> None:
        """Start all commands for an event in the background.

        `event` is ENDED, FAILED, RESTARTED, WAITING or NEAR_BOUND. `text` describes it. `facts` are further fields of
        its JSON.
        """
        document = {"event": event, "run_id": self._run_id, "text": text, "time": round(time.time(), 3), **facts}
        for number, command in enumerate(self._commands, start=1):
            thread = threading.Thread(target=self._tell, args=(number, command, document), daemon=True)
            thread.start()
            self._threads.append(thread)

    def tell_end(self, state: State) -> None:
        """Start the commands for the end of the run, in the background.

        The event is `failed` if the run has failed, and `ended` if it has succeeded or was stopped.
        """
        event = FAILED if state.state == FAILED else ENDED
        reason = f": {state.reason}" if state.reason else ""
        self.tell(event, f"run {state.run_id} {state.state}{reason}", state=state.state, reason=state.reason)

    def finish(self) -> None:
        """Wait until all commands have exited or timed out. Then `failures` has a message about each failed command."""
        deadline = time.monotonic() + TIMEOUT_S + 5.0
        for thread in self._threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))

    def _tell(self, number: int, command: str, document: dict[str, Any]) -> None:
        if trouble := self._call(command, document, self._directory):
            what = f"that the run {_WORDS[document['event']]}"
            told = f"--notify number {number} could not report {what}: {trouble}"
            self.failures.append(told)
            self._log(told)


_WORDS: Final = {
    ENDED: "has ended",
    FAILED: "has failed",
    RESTARTED: "was restarted",
    WAITING: "waits for nodes",
    NEAR_BOUND: "is near its limit",
}
