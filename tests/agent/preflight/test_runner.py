"""The time limit of the pre-flight allreduce: ranks that start slowly get more time for the rest."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from agent.launch.launcher_command import Interpreters
from agent.launch.run_hosts import Hosts
from agent.preflight import node_checks
from agent.preflight.allreduce import HERE
from agent.preflight.report import Finding, Report
from agent.preflight.runner import Preflight
from agent.remote.ssh import Completed
from agent.runs.run_directory import RunDirectory
from agent.spec.run import RunSpec
from tests.factories import make_nodes, make_spec

PYTHONS = Interpreters(launcher="python", ranks="python", runtime="")


@pytest.fixture
def spec() -> RunSpec:
    return make_spec(run_id="one", hosts=make_nodes(2))


@pytest.fixture
def preflight(spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Preflight:
    """Return a pre-flight check with an allreduce limit of 1 s, or 10 times the start-up of its ranks if longer."""
    monkeypatch.setattr(node_checks, "PROOF_TIMEOUT_S", 1.0)
    (tmp_path / "one").mkdir()
    hosts = Hosts(
        spec,
        tmp_path,
        lambda argv, _: Completed(status=0, output=""),
        on_poll=lambda: None,
        is_cancelled=lambda: False,
        log_line=print,
    )
    return Preflight(
        spec=spec,
        directory=RunDirectory(path=tmp_path / "one"),
        runs_root=tmp_path,
        hosts=hosts,
        is_cancelled=lambda: False,
        set_reason=print,
        log_line=print,
    )


def prove(preflight: Preflight, monkeypatch: pytest.MonkeyPatch, script: str) -> tuple[int, str]:
    lines = "".join(f"echo '{HERE}{json.dumps({'host': host.name})}'; " for host in preflight.spec.hosts)
    command = ["/bin/sh", "-c", script.replace("START", lines)]
    monkeypatch.setattr(Preflight, "_proof_command", lambda self, pythons: command)
    return preflight._prove(PYTHONS)


def test_slowly_starting_ranks_get_more_time(preflight: Preflight, monkeypatch: pytest.MonkeyPatch) -> None:
    status, output = prove(preflight, monkeypatch, "sleep 0.5; START sleep 1.5; echo proved")
    assert (status, output.endswith("proved\n")) == (0, True)


@pytest.mark.parametrize("script", ["START sleep 60", "sleep 60"])
def test_ranks_that_start_immediately_or_never_get_no_more_time(
    preflight: Preflight, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    assert prove(preflight, monkeypatch, script)[0] == 124


def test_directory_of_a_rank_in_place_of_the_log_does_not_matter(
    preflight: Preflight, monkeypatch: pytest.MonkeyPatch
) -> None:
    (preflight.directory.path / "preflight.log").mkdir()
    assert prove(preflight, monkeypatch, "START echo proved")[0] == 0


def test_all_ranks_have_started_after_each_reported_it(spec: RunSpec) -> None:
    line = '[0]<stdout>:deepcdk-here {"host": "deeplearning-worker1"}\n'
    assert [node_checks.is_everyone_here(spec, line * count) for count in (0, 1, 2)] == [False, False, True]


@pytest.mark.parametrize("warned", [True, False])
def test_nodes_with_warning_repeat_allreduce_before_next_run(
    preflight: Preflight, spec: RunSpec, monkeypatch: pytest.MonkeyPatch, *, warned: bool
) -> None:
    clean = Report(cells=(("worker1", *["ok"] * 9),), findings=())
    warning = Finding(node="", check="allreduce", what="NCCL 2.32.3 with aws-ofi-nccl 1.18.0", remedy="another image")
    proofs: list[str] = []
    monkeypatch.setattr(node_checks, "judge", lambda *_: (clean, {}))

    def prove(_: Preflight, pythons: Interpreters) -> tuple[int, str]:
        proofs.append(pythons.ranks)
        return 0, ""

    monkeypatch.setattr(Preflight, "_prove", prove)
    monkeypatch.setattr(
        node_checks, "judge_allreduce", lambda *_: dataclasses.replace(clean, warnings=(warning,) if warned else ())
    )
    preflight.directory.spec.write_text(spec.to_json())
    for _ in range(2):
        preflight.run(PYTHONS, {})
    assert len(proofs) == (2 if warned else 1)
