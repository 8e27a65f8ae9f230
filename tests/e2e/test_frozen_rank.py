"""A rank that is frozen in mid-training: its node ends it, and the run names it and goes on, whatever its launcher."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Final

import pytest

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


STEPS: Final = """\
import os, pathlib, signal, time
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
stopped = pathlib.Path("stopped")
for step in range(40):
    hvd.allreduce(tf.ones([1000]), name="gradients")
    if hvd.rank() == 0:
        print("step", step, time.time(), flush=True)
    if hvd.rank() == 1 and step == 20 and not stopped.exists():
        stopped.write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGSTOP)
"""
AFTER_S: Final = int(os.environ.get("FROZEN_AFTER", "3"))
"""How long a rank may be stopped here; people have 10 s."""


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_a_rank_that_is_frozen_is_named_and_the_run_goes_on_by_itself(
    cluster: EmbeddedCloud, tmp_path: Path, controller: str
) -> None:
    (tmp_path / "train.py").write_text(STEPS)
    program = ("--payload", str(tmp_path), "--entry", "train.py", "--controller", controller)
    words = (*program, "--frozen-after", str(AFTER_S), "--skip-preflight", "--yes")
    done = cluster.fab("train", "--nodes", "2", *words, check=False)
    record = json.loads(cluster.fab("show", "--json").stdout)
    run = str(record["run_id"])
    log = cluster.fab("logs", "--run", run).stdout
    assert (done.returncode, record["state"]["state"], record["attempts"]) == (0, "succeeded", 2), log[-4000:]
    (again,), (seen,) = record["course"]["restarts"], record["course"]["frozen"]
    assert re.fullmatch(r"rank 1 on deeplearning-worker2 was frozen \(stopped, state T\) for \d+ s", again["for"])
    assert f"restart 1 of 3, for {again['for']}" in done.stdout
    assert (seen["rank"], seen["node"], seen["attempt"]) == (1, "deeplearning-worker2", 1)
    assert f"[supervisor] frozen on deeplearning-worker2: rank 1, process {seen['pid']} (" in log
    stopped = float((cluster.run(run).path / "work" / "stopped").read_text())
    noticed_s, steps = again["time"] - stopped, re.findall(r"^\[0\]<stdout>:step (\d+) (\S+)$", log, re.MULTILINE)
    next_s = min(float(at) for _, at in steps if float(at) > again["time"]) - stopped
    print(f"{controller}, after SIGSTOP: restarted after {noticed_s:.1f} s, next step after {next_s:.1f} s")
    assert AFTER_S <= noticed_s < AFTER_S + 30


def test_without_the_nodes_own_watch_the_others_give_up_and_the_message_still_names_the_frozen_rank(
    cluster: EmbeddedCloud, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    program = (
        "--payload",
        str(tmp_path),
        "--entry",
        "train.py",
        "--env",
        "HOROVOD_GLOO_TIMEOUT_SECONDS=10",
        "--frozen-after",
        "0",
    )
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
