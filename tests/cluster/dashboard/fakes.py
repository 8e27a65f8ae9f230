"""A fake cluster for the dashboard: its supervisor answers from memory, with the recorded run of digits."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from agent.hardware.load import Load
from cluster.dashboard.page_data import ClusterView, Readers
from cluster.dashboard.server import Dashboard, Server
from cluster.errors import ConnectionFailedError, DeepcdkError
from cluster.nodes import node_load as loads
from cluster.nodes.occupancy import Occupancy
from cluster.nodes.status import status_document
from tests.cluster.report.recorded_runs import DIGITS, raw
from tests.factories import LAUNCHED, MASTER_ID, make_instance, make_inventory, make_master_instance, make_node

RECORDED: Final = str(raw()["run_id"])
GIB: Final = 1 << 30


def make_run(number: int, **changes: Any) -> dict[str, Any]:
    """Return the summary of an ended run; a larger number is a later run."""
    started = 1_763_640_000.0 + 600 * number
    found = {
        "run_id": f"20251120-{number // 60 % 24:02d}{number % 60:02d}00-digits-{number:04x}", "state": "succeeded",
        "reason": "", "started": started, "updated": started + 30 + number % 500, "hosts": ["deeplearning-worker1"],
        "last_lines": [], "position": None, "epoch": {"epoch": 20, "test_accuracy": 0.9 + number % 100 / 1000},
        "exit_code": 0, "spent": {"seconds": 60.0, "usd": number % 700 / 100, "usd_per_hour": 0.42, "reached": None},
        "started_by": {"user": ("alice", "bob", "carol")[number % 3], "host": "laptop", "laptop": str(number % 3)},
    }  # fmt: skip
    return {**found, **changes}


@dataclasses.dataclass
class FakeCluster:
    """The state of a cluster, which tests change, and its supervisor."""

    runs_: list[dict[str, Any]] = dataclasses.field(default_factory=lambda: [make_run(n) for n in range(3)])
    log: list[str] = dataclasses.field(default_factory=lambda: ["[supervisor] preparing", "[0]<stdout>: epoch 1"])
    metrics: list[dict[str, Any]] = dataclasses.field(
        default_factory=lambda: [json.loads(line) for line in (DIGITS / "metrics.jsonl").read_text().splitlines()]
    )
    record: dict[str, Any] = dataclasses.field(default_factory=lambda: copy.deepcopy(raw()))
    broken: str = ""
    """The reason for a missing connection; "" if there is one."""
    acted: list[tuple[str, str, str, bool]] = dataclasses.field(default_factory=list)
    answers: list[dict[str, str]] = dataclasses.field(default_factory=list)
    followed: list[Sequence[str]] = dataclasses.field(default_factory=list)
    asked: list[str] = dataclasses.field(default_factory=list)
    load: float = 0.83
    master: Any = None

    @contextlib.contextmanager
    def supervisor(self) -> Iterator[tuple[Any, Any]]:
        """Replace `Link.supervisor`."""
        if self.broken:
            raise ConnectionFailedError(self.broken, where="ec2-user@198.18.1.2")
        yield None, self

    def close(self) -> None:
        """Replace `Link.close`."""

    def runs(self) -> list[dict[str, Any]]:
        """Return the summaries of all runs, oldest first."""
        return [*self.runs_]

    def occupancy(self) -> Occupancy:
        """Return the live and queued runs."""
        states = {run["run_id"]: run["state"] for run in self.runs_}
        live = {run_id: ("deeplearning-worker1",) for run_id, state in states.items() if state == "running"}
        return Occupancy(hosts=live, queued=tuple(run_id for run_id in states if states[run_id] == "queued"))

    def status(self, run_id: str) -> dict[str, Any]:
        """Return the summary of a run."""
        self.asked.append(run_id)
        return next(run for run in self.runs_ if run["run_id"] == run_id)

    def show(self, run_id: str) -> dict[str, Any]:
        """Return the record of the recorded run."""
        if run_id != self.record["run_id"]:
            raise DeepcdkError(f"there is no run {run_id}", remedy="`fab runs` lists them")
        return copy.deepcopy(self.record)

    def messages(self, master: object, run_id: str, words: Sequence[str]) -> Iterator[str]:
        """Yield the messages of `follow --once`."""
        self.followed.append(words)
        given = dict(zip(words[::2], map(int, words[1:4:2]), strict=False))
        for line in range(given["--from-line"], len(self.metrics)):
            yield json.dumps({"type": "metric", "line": line, "record": self.metrics[line]})
        first = given["--log-from"] + (len(self.log) if given["--log-from"] < 0 else 0)
        yield json.dumps({"type": "log", "run_id": run_id, "next": len(self.log), "lines": self.log[max(0, first) :]})
        yield json.dumps({"type": "state", **self.record["state"], "spent": None})

    def view(self) -> ClusterView:
        """Return the cluster's nodes: a master and two workers; the first worker has a run."""
        if self.broken:
            raise ConnectionFailedError(self.broken, where="ec2-user@198.18.1.2")
        instances = (make_master_instance(), make_instance(1), make_instance(2, spot=True))
        found = make_inventory(2, instances=instances)
        status = status_document(
            found, {"t3.medium": 0.0416, "c5.2xlarge": 0.34}, LAUNCHED.replace(hour=14, minute=3), "2026-11-01"
        )
        busy = Load(
            processor=self.load, cores=8, memory_used=5 * GIB, memory_total=16 * GIB, received_per_s=2.1e7,
            sent_per_s=1.9e7, disk_used=20 * GIB, disk_total=100 * GIB, gpus=(),
        )  # fmt: skip
        live = next((run["run_id"] for run in self.runs_ if run["state"] == "running"), "")
        rows = (
            loads.Row(instance_id=MASTER_ID, name="deeplearning-master", load=dataclasses.replace(busy, cores=2)),
            loads.Row(instance_id=make_node(1).instance_id, name=make_node(1).name, load=busy, run_id=live),
            loads.Row(instance_id=make_node(2).instance_id, name=make_node(2).name, load="no answer within 20 s"),
        )
        limits = ("workers are terminated after all of them were idle without a live run for 1 h",)
        return ClusterView(status=status, load=loads.table(rows), limits=limits)

    def act(self, verb: str, kind: str, name: str, agreed: bool) -> dict[str, str]:
        """Record an action and return the next answer."""
        self.acted.append((verb, kind, name, agreed))
        return self.answers.pop(0)

    def report(self, run_id: str) -> str:
        """Return a page in place of the report."""
        return f"<!doctype html><title>report of {run_id}</title>"


class FakeReaders(Readers):
    """The readers of a fake cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(lambda: cast("Any", None))
        self.fake, self.link = cluster, cast("Any", cluster)

    def _read_cluster(self) -> ClusterView:
        return self.fake.view()


@contextlib.contextmanager
def serving(cluster: FakeCluster) -> Iterator[Server]:
    """Serve the dashboard of a fake cluster on a free port."""
    server = Server(Dashboard("deepcdk", FakeReaders(cluster), cluster.act, cluster.report), 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def swept_cluster(name: str = "lr-search", parameters: Sequence[str] = ("learning-rate", "depth")) -> FakeCluster:
    """Return a cluster with a sweep of three values by two, two runs each: live, queued and failed ones too."""
    cluster, combinations = live_cluster(), [(rate, depth) for rate in ("0.1", "0.01", "0.001") for depth in "24"]
    for number, values in enumerate(combinations * 2):
        trial = {
            "sweep": name,
            "number": number + 1,
            "parameters": [[*pair] for pair in zip(parameters, values, strict=True)],
            "repeat": 1 + number // len(combinations),
            "seed": 1,
        }
        others: dict[int, dict[str, Any]] = {
            9: {"state": "failed", "reason": "rank 0 exited with status 1: ValueError: the loss is not a number"},
            10: {"state": "running"},
            11: {"state": "queued", "position": 2, "epoch": None, "spent": None, "hosts": []},
        }
        cluster.runs_.append(make_run(20 + number, trial=trial, **others.get(number, {})))
    return cluster


def live_cluster() -> FakeCluster:
    """Return a cluster with the recorded run of digits live, one queued run, and ended runs."""
    cluster = FakeCluster()
    state = {**cluster.record["state"], "state": "running"}
    cluster.record = {**cluster.record, "state": state, "result": None}
    spans = {"started": state["started"], "updated": state["updated"]}
    live = make_run(3, run_id=RECORDED, state="running", epoch={"epoch": 7, "test_accuracy": 0.94}, **spans)
    queued = make_run(
        4, state="queued", position=1, reason="waits for 2 nodes, behind nobody", epoch=None, spent=None, hosts=[]
    )
    failed = make_run(5, state="failed", reason="rank 1 on worker2 exited with status 1: ValueError: shapes differ")
    cluster.runs_ += [failed, live, queued]
    return cluster
