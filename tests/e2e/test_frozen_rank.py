"""A rank that is frozen in mid-training: the others give up after Gloo's time-out, and the run names the frozen one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import eventually

PROGRAM: Final = """\
import os, pathlib, signal, time
import tensorflow as tf
import horovod.tensorflow as hvd
rank, size = os.environ["HOROVOD_RANK"], int(os.environ["HOROVOD_SIZE"])
pathlib.Path(f"here-{rank}").touch()
while len(list(pathlib.Path().glob("here-*"))) < size:  # the time-out is shorter than an import may take
    time.sleep(0.1)
hvd.init()
for step in range(1000000):
    if step == 20 and rank == "1":
        os.kill(os.getpid(), signal.SIGSTOP)
    hvd.allreduce(tf.ones([1000]), name="gradients")
"""


def test_the_message_names_the_rank_that_was_frozen_and_not_the_first_that_ended(
    cluster: EmbeddedCloud, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    program = ("--payload", str(tmp_path), "--entry", "train.py", "--env", "HOROVOD_GLOO_TIMEOUT_SECONDS=10")
    started = json.loads(
        cluster.fab(
            "train", "--nodes", "2", *program, "--skip-preflight", "--restarts", "0", "--detach", "--yes", "--json"
        ).stdout
    )
    run = str(started["run_id"])

    try:
        eventually(lambda: cluster.run(run).state in ("failed", "succeeded"))
        found: dict[str, Any] = json.loads(cluster.fab("show", "--run", run, "--json").stdout)["state"]
        log = cluster.fab("logs", "--run", run).stdout
        assert "Process name: 0\n" in log, "the rank that ended first is not the frozen one"
        assert found["reason"] == (
            "rank 1 on deeplearning-worker2 had not reported when a collective timed out after 10 s; rank 0 had"
        )
    finally:
        cluster.fab("stop", "--run", run, "--force", check=False)
