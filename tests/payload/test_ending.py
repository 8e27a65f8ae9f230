"""Facts about a run's end: a node that is taken away is the reason, else the rank that ended first."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from payload.ending import LEAVING, reason
from payload.launch import choose_hosts, parse_nodes
from tests.payload.test_launch import NODES, make_launch

LOG = """\
[1]<stderr>:ValueError: no such file
RuntimeError: Horovod detected that one or more processes exited with non-zero status, thus causing the job to be \
terminated. The first process to do so was:
Process name: {}
Exit code: {}

Process 0 exit with status code 1.
"""
HOSTS = choose_hosts(parse_nodes(NODES), 2)


def test_a_node_that_is_taken_away_is_named_with_the_remedy(tmp_path: Path) -> None:
    launch = make_launch(hosts=HOSTS, efs_mount=str(tmp_path))
    place = tmp_path / LEAVING / HOSTS[1].instance_id
    place.parent.mkdir(parents=True)
    place.write_text('EC2 takes this spot instance back: {"action": "terminate", "time": "2026-11-20T12:00:00Z"}\n')
    assert reason(launch, 1, LOG.format(1, 143)) == (
        f"{HOSTS[1].name} leaves the cluster (EC2 takes this spot instance back); "
        f"`fab resume {launch.run_id}` goes on once its group has put another in its place"
    )


def test_another_instances_notice_is_no_reason(tmp_path: Path) -> None:
    (tmp_path / LEAVING).mkdir(parents=True)
    (tmp_path / LEAVING / "i-other").write_text("its group ends this instance\n")
    assert reason(make_launch(efs_mount=str(tmp_path)), 7, "") == "the launcher ended with status 7"


def test_the_rank_that_ended_first_is_named_with_its_host() -> None:
    hosts = tuple(dataclasses.replace(host, slots=2) for host in HOSTS)
    launch = make_launch(hosts=hosts)
    assert reason(launch, 1, LOG.format(3, 2)) == f"rank 3 on {HOSTS[1].name} ended first, with status 2"
    assert reason(launch, 1, LOG.format(9, -9)) == "rank 9 ended first, with signal 9"
    # A log of two attempts tells of both; the last one counts.
    assert "rank 0" in reason(launch, 1, LOG.format(3, 2) + LOG.format(0, 1))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "--------\nmpirun detected that one or more processes exited with non-zero status, thus causing\n"
            "the job to be terminated. The first process to do so was:\n\n"
            "  Process name: [[6704,1],1]\n  Exit code:    3\n--------\n",
            f"rank 1 on {HOSTS[0].name} ended first, with status 3",
        ),
        (
            "mpirun noticed that process rank 4 with PID 29511 on node ip-10-0-1-11 exited on signal 9 (Killed).\n",
            f"rank 4 on {HOSTS[1].name} ended first, with signal 9",
        ),
        (
            "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[14671,0],0] on node ip-10-0-0-5\n"
            "  Remote daemon: [[14671,0],2] on node deeplearning-worker2\n\nThis is usually due to either a failure\n",
            "deeplearning-worker2 no longer answers; `fab replace worker2`, then `fab resume`",
        ),
    ],
)
def test_what_mpirun_says_of_a_rank_or_a_host_is_read_too(said: str, why: str) -> None:
    assert reason(make_launch(hosts=HOSTS), 1, said) == why


def test_a_launcher_that_says_nothing_is_told_by_its_status() -> None:
    assert reason(make_launch(), -9, "killed") == "the launcher ended with signal 9"
