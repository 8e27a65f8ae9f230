"""Actions of the dashboard: each runs a command, and its answer is never empty."""

from __future__ import annotations

import subprocess

import pytest

from cluster.tasks.dashboard import act
from cluster.terminal.confirmation import NO_TERMINAL

LOOK = "look at the run before you repeat it"


@pytest.mark.parametrize(
    ("status", "stdout", "stderr", "answer"),
    [
        (0, "a\nrun r: stopped\n", "", {"done": "run r: stopped"}),
        (0, "", "", {"done": "done"}),
        (1, "", f"progress\ndeepcdk: stop run r. {NO_TERMINAL}\n  do: give --yes", {"question": "stop run r."}),
        (1, "", "deepcdk: no run r", {"error": "no run r"}),
        (-9, "", "", {"error": f"the command exited with status -9 and no message; {LOOK}"}),
    ],
)
def test_answer_has_result_question_or_error(
    status: int, stdout: str, stderr: str, answer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.CompletedProcess([], status, stdout, stderr)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: done)
    assert act([], "stop", "runs", "r", agreed=False) == answer
