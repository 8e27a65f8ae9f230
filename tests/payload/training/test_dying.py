from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.horovod

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("dying_program.py")


def run(rank: int, number: str, run_dir: Path) -> subprocess.CompletedProcess[str]:
    """Train digits on two ranks. One gets a signal in mid-epoch; the other has 5 s to notice."""
    launcher = [sys.executable, "-m", "agent.launch.horovodrun", "-np", "2", "-H", "localhost:2", "--gloo"]
    program = ["env", f"PYTHONPATH={ROOT}", "TF_CPP_MIN_LOG_LEVEL=2", sys.executable, str(PROGRAM)]
    program += [str(rank), number, str(run_dir / "checkpoints" / "step-00000003")]
    flags = ["--recipe", "digits", "--global-batch", "33", "--train-limit", "71", "--run-dir", str(run_dir)]
    return subprocess.run(
        [*launcher, "--gloo-timeout-seconds", "5", *program, *flags, "--checkpoint-epochs", "1"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600,
    )


@pytest.mark.parametrize(
    ("rank", "number", "reason"),
    [
        (1, "SIGKILL", r"Horovod has been shut down|[Cc]onnection closed by peer.*"),
        pytest.param(0, "SIGSTOP", r"Horovod has been shut down|Timed out waiting.*", marks=pytest.mark.full),
    ],
    ids=["killed", "without an answer"],
)
def test_lost_rank_stops_others_with_one_line(tmp_path: Path, rank: int, number: str, reason: str) -> None:
    done = run(rank, number, tmp_path)
    assert done.returncode != 0
    said = re.findall(rf"^\[{1 - rank}\]<stderr>:(payload\.train: error: .*)$", done.stderr, re.MULTILINE)
    assert len(said) == 1
    assert re.match(rf"payload.train: error: a rank exited or its host is lost: ({reason})\. See the last", said[0])
    assert "--resume" in said[0]
    assert f"[{1 - rank}]<stderr>:Traceback" not in done.stderr
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"step-00000003", "writer.json"}
