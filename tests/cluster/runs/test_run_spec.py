"""The spec of a new run."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.errors import SpecError
from agent.hardware.topology import read_topology
from agent.spec.horovod import Knobs
from agent.spec.nodes import Node
from agent.spec.run import RunSpec
from cluster.cli import CODE
from cluster.errors import DeepcdkError, UsageError
from cluster.programs.python_environment import RUNTIME, Environment
from cluster.programs.user_program import Program
from cluster.runs.recipe_or_program import Training
from cluster.runs.run_options import RankOptions, RunOptions
from cluster.runs.run_spec import Stamp, specify, stored_spec
from cluster.runs.train_request import PRINT_CORES
from tests.factories import AGENT, PAYLOAD, PROGRAM, make_master, make_nodes, make_stack

STACK = make_stack()
NODES = (make_master(), *make_nodes(2, slots=4))


def make_launch(
    nodes: tuple[Node, ...] = NODES,
    count: int = 2,
    training: Training | Program | None = None,
    options: RunOptions | None = None,
    cores: dict[str, int] | None = None,
    environment: Environment = RUNTIME,
) -> RunSpec:
    return specify(
        STACK,
        training or Training(),
        nodes,
        count,
        agent=AGENT,
        tree=PROGRAM if isinstance(training, Program) else PAYLOAD,
        options=options or RunOptions(),
        cores=cores,
        environment=environment,
        stamp=Stamp(now=datetime.datetime(2026, 11, 20, 12, 13, 14), token="ab12", git_commit="c0ffee+"),
    )


def test_spec_has_directory_and_origin_of_run() -> None:
    launch = make_launch()
    assert launch.run_directory == "/mnt/efs/runs/20261120-121314-digits-ab12"
    assert launch.run_directory in launch.command
    assert launch.interface == "ens5"
    assert dict(launch.environment) == {"DEEPCDK_GIT_COMMIT": "c0ffee+", "DEEPCDK_PAYLOAD_HASH": "0123456789abcdef"}
    assert (launch.agent, launch.payload, launch.program) == ("a" * 16, "0123456789abcdef", "")


def test_number_of_ranks_is_requested_or_registered() -> None:
    assert [host.slots for host in make_launch().hosts] == [4, 4]
    asked = make_launch(options=RunOptions(ranks=RankOptions(ranks_per_node="2")))
    assert ([host.slots for host in asked.hosts], asked.ranks_per_node) == ([2, 2], 2)
    cores = RunOptions(ranks=RankOptions(ranks_per_node="cores"))
    by_cores = make_launch(options=cores, cores={"deeplearning-worker1": 8, "deeplearning-worker2": 6})
    assert [host.slots for host in by_cores.hosts] == [8, 6]
    for text in ("0", "many", "-1", "1025"):
        with pytest.raises(UsageError, match="--ranks-per-node"):
            RankOptions(ranks_per_node=text)


@pytest.mark.parametrize(
    ("asked", "given", "count", "chosen"),
    [
        ("auto", "8", 1, "mpi"),  # more than the GPUs' slots: use the cores of one host
        ("auto", "cores", 1, "mpi"),
        ("auto", "8", 2, "gloo"),
        ("auto", "4", 1, "gloo"),
        ("auto", "", 1, "gloo"),
        ("gloo", "8", 1, "gloo"),
        ("mpi", "", 2, "mpi"),
    ],
)
def test_ranks_on_the_cores_of_one_host_meet_over_open_mpi(asked: str, given: str, count: int, chosen: str) -> None:
    options = RunOptions(ranks=RankOptions(ranks_per_node=given, controller=asked))
    assert make_launch(count=count, options=options, cores={"deeplearning-worker1": 8}).controller == chosen


def test_spec_has_only_names_of_secrets() -> None:
    assert make_launch(options=RunOptions(secrets=("TOKEN",))).secrets == ("TOKEN",)
    with pytest.raises(UsageError, match=r"TOKEN.*also given with --env"):
        RunOptions(environment=(("TOKEN", "x"),), secrets=("TOKEN",))


def test_options_reach_the_spec() -> None:
    launch = make_launch(options=RunOptions(environment=(("NAME", "value"),), knobs=Knobs(autotune=True)))
    assert ("NAME", "value") in launch.environment
    assert launch.knobs.autotune
    unplaced = make_launch(options=RunOptions(ranks=RankOptions(placement="none")))
    assert (launch.placement, unplaced.placement, launch.own_gpu) == ("auto", "none", False)


def test_too_few_nodes_are_reported_with_fix() -> None:
    with pytest.raises(SpecError, match=r"^3 nodes requested, but 2 ready .*; add workers with `fab scale`$"):
        make_launch(count=3)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (None, "must be an object"),
        ({"later": 1}, "unknown fields: later; another version of deepcdk wrote the spec"),
        ({"agent": "x"}, "agent = 'x': must be 16 hexadecimal digits"),
    ],
)
def test_invalid_spec_of_a_record_is_reported_with_run_and_remedy(spec: dict[str, Any] | None, reason: str) -> None:
    stored = json.loads(make_launch().to_json())
    record = {"run_id": "one", "directory": "/mnt/efs/runs/one", "spec": spec and stored | spec}
    with pytest.raises(
        DeepcdkError, match=f"^run one cannot be resumed: the run's spec is invalid: {reason}"
    ) as caught:
        stored_spec(record, remedy="start a new run")
    assert (caught.value.where, caught.value.remedy) == ("/mnt/efs/runs/one", "start a new run")
    assert stored_spec(record | {"spec": stored}, remedy="") == make_launch()


def test_spec_has_own_environment_and_keras_2_only_if_tf_keras_is_needed(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").touch()
    program = Program(directory=tmp_path, entry=("train.py",), keras=2)
    assert make_launch(training=program).keras == 2
    own = Environment(lock="numpy==1.26.4\n", horovod_for=("tensorflow",), keras=2)
    spec = make_launch(training=program, environment=own)
    assert (spec.own_environment, spec.horovod_for, spec.keras) == (True, ("tensorflow",), 3)
    beside = Environment(lock="numpy==1.26.4\n", horovod_for=("tensorflow",), tf_keras=True)
    assert make_launch(training=program, environment=beside).keras == 2


def test_program_for_nodes_prints_the_number_of_physical_cores() -> None:
    command = [sys.executable, "-c", PRINT_CORES]
    environ = {**os.environ, "PYTHONPATH": str(CODE)}
    printed = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
    assert int(printed) == len(read_topology(Path("/"), os.sched_getaffinity(0)).cores)
