"""Occupied nodes: where another run can start, and when the user must add nodes."""

from __future__ import annotations

import pytest

from cluster.errors import LiveRunError
from cluster.nodes.occupancy import Occupancy, describe_replacement, describe_runs, shortened
from tests.factories import make_master, make_nodes

TWO_RUNS = Occupancy(hosts={"one": ("deeplearning-worker1", "deeplearning-worker3"), "two": ("deeplearning-worker4",)})
NODES = (make_master(), *make_nodes(5))


def test_run_gets_free_nodes_and_queued_run_any() -> None:
    assert [node.name[-1] for node in TWO_RUNS.choice(NODES, 2, queueing=False)] == ["r", "2", "5"]
    assert TWO_RUNS.choice(NODES, 2, queueing=True) == TWO_RUNS.choice(NODES, 2, queueing=False)
    assert TWO_RUNS.choice(NODES, 3, queueing=True) == NODES
    assert Occupancy().choice(NODES, 5, queueing=False) == NODES


def test_cluster_must_fit_nodes_of_live_runs_and_new_run() -> None:
    assert Occupancy().size_for(7, 5, queueing=False) == 7, "an empty cluster grows, after asking"
    assert TWO_RUNS.size_for(2, 5, queueing=False) == 5
    assert TWO_RUNS.size_for(3, 5, queueing=True) == 3
    with pytest.raises(LiveRunError) as refused:
        TWO_RUNS.size_for(3, 5, queueing=False)
    assert "run one is live on deeplearning-worker1, deeplearning-worker3; run two is live on" in refused.value.what
    assert "wait your turn with --queue, add nodes with `fab scale 6`" in refused.value.remedy
    with pytest.raises(LiveRunError, match="run six is queued, and no other run starts before it"):
        Occupancy(queued=("six",)).size_for(1, 5, queueing=False)


def test_replaced_workers_are_described_with_time_and_reason() -> None:
    made = {
        "time": 1764342000.0,
        "node": "deeplearning-worker4",
        "instance_id": "i-1",
        "reason": "silent",
        "trouble": "",
    }
    document = {"live": [], "queued": [], "replaced": [made, {**made, "trouble": "the limit"}]}
    assert [describe_replacement(each) for each in Occupancy.from_document(document).replaced] == [
        "deeplearning-worker4 (i-1) was replaced at 15:00 UTC: silent",
        "deeplearning-worker4 (i-1) was not replaced (the limit) at 15:00 UTC: silent",
    ]


def test_neighbors_are_shown_as_a_range() -> None:
    assert shortened([f"deeplearning-worker{n}" for n in (10, 2, 1, 3, 12)]) == "worker1-3, worker10, worker12"
    assert shortened(["deeplearning-worker1", "deeplearning-workerX", "deeplearning-master", "\x1b[2J"]) == "worker1"
    assert describe_runs(["one"]) == "run one"
    assert describe_runs(["one", "two"]) == "runs one, two"
